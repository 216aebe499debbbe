"""Extractors by name, on tiny random networks of the libraries; nothing is fetched."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from legenda.compute import ComputeOptions, RunOptions
from legenda.errors import ConfigError, LegendaError
from legenda.extractors import load_extractor
from legenda.extractors.torchvision import extract_regions
from legenda.features.extractors import is_registered, needs_no_file, resolve_extractor
from legenda.images.extractor import ExtractorIdentity

transformers = pytest.importorskip("transformers")
SIDE = 32
pytestmark = pytest.mark.usefixtures("offline")


def image(seed: int, size: tuple[int, int] = (50, 40)) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8))


def processor(folder: Path, **extra) -> None:
    settings = {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": SIDE, "width": SIDE},
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.2, 0.3, 0.4],
        **extra,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))


SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": SIDE, "patch_size": 8}
VISION = {**SMALL, "intermediate_size": 16}
TEXT = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 20}


def backbones():
    t = transformers
    return {
        "vit": lambda: t.ViTModel(t.ViTConfig(**VISION)),
        "dinov2": lambda: t.Dinov2Model(t.Dinov2Config(**SMALL, mlp_ratio=1)),
        "dinov2_registers": lambda: t.Dinov2WithRegistersModel(
            t.Dinov2WithRegistersConfig(**SMALL, mlp_ratio=1, num_register_tokens=4)
        ),
        "clip": lambda: t.CLIPModel(t.CLIPConfig(text_config=TEXT, vision_config=VISION)),
        "siglip": lambda: t.SiglipModel(t.SiglipConfig(text_config=TEXT, vision_config=VISION)),
        "resnet": lambda: t.ResNetModel(
            t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
        ),
        "swin": lambda: t.SwinModel(
            t.SwinConfig(image_size=SIDE, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4)
        ),
    }


CELLS = {"resnet": 16, "swin": 64}


@pytest.mark.parametrize("kind", backbones())
def test_any_backbone_gives_a_grid_with_the_boxes_of_its_cells(tmp_path, kind):
    torch.manual_seed(0)
    backbones()[kind]().save_pretrained(tmp_path)
    processor(tmp_path)
    extractor = load_extractor(f"hf:{tmp_path}")
    both = extractor.extract([image(0), image(1)])
    (one,) = extractor.extract([image(1)])
    cells = CELLS.get(kind, 16)
    for features, boxes in both:
        assert features.shape == (cells, 16)
        assert boxes is not None
        assert boxes.shape == (cells, 4)
        assert boxes[0].tolist() == [0, 0, cells**-0.5, cells**-0.5]
    np.testing.assert_allclose(both[1][0], one[0], atol=1e-5)
    assert np.abs(both[0][0] - both[1][0]).max() > 1e-4


def detr() -> torch.nn.Module:
    sizes = {"layers": 1, "ffn_dim": 16, "attention_heads": 2}
    parts = {f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in sizes.items()}
    resnet = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    own = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_config": resnet}
    config = transformers.DetrConfig(**own, **parts, d_model=16, num_queries=14, num_labels=5)
    return transformers.DetrForObjectDetection(config)


def rt_detr() -> torch.nn.Module:
    config = transformers.RTDetrConfig(
        backbone_config=transformers.RTDetrResNetConfig(
            embedding_size=8, hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], layer_type="basic",
            out_features=["stage2", "stage3", "stage4"],
        ),
        encoder_hidden_dim=16, encoder_in_channels=[8, 8, 8], encoder_ffn_dim=16, encoder_attention_heads=2,
        d_model=16, num_queries=14, decoder_in_channels=[16, 16, 16], decoder_ffn_dim=16, decoder_layers=1,
        decoder_attention_heads=2, decoder_n_points=2, num_denoising=0, num_labels=5, encoder_layers=1,
    )  # fmt: skip
    return transformers.RTDetrForObjectDetection(config)


@pytest.mark.parametrize(("make", "kind"), [(detr, "DetrImageProcessor"), (rt_detr, "RTDetrImageProcessor")])
def test_a_detr_returns_the_regions_of_its_queries(tmp_path, make, kind):
    torch.manual_seed(0)
    make().save_pretrained(tmp_path)
    size = {"height": 64, "width": 64} if kind.startswith("RT") else {"shortest_edge": 48, "longest_edge": 80}
    processor(tmp_path, image_processor_type=kind, size=size)
    extractor = load_extractor(f"hf:{tmp_path}")
    images = [image(0), image(1, (30, 60))]
    for (features, boxes), each in zip(extractor.extract(images), images, strict=True):
        np.testing.assert_allclose(extractor.extract([each])[0][0], features, atol=1e-4)
        assert boxes is not None
        assert 1 <= len(features) == len(boxes) <= 14
        assert features.shape[1] == 16
        assert (boxes[:, 2:] > boxes[:, :2]).all()
        assert ((boxes >= 0) & (boxes <= 1)).all()
    fixed = load_extractor(f"hf:{tmp_path}", num_regions=5)
    assert fixed.name == f"{extractor.name}@5regions"
    assert [features.shape for features, _ in fixed.extract(images)] == [(5, 16), (5, 16)]
    with pytest.raises(LegendaError, match=r"14.*36"):
        load_extractor(f"hf:{tmp_path}", num_regions=36)


def test_a_faster_rcnn_returns_the_features_of_its_boxes():
    torch.manual_seed(0)
    create = pytest.importorskip("torchvision").models.detection.fasterrcnn_mobilenet_v3_large_320_fpn
    model = create(weights=None, weights_backbone=None, num_classes=4, min_size=64, max_size=96)
    extract = partial(extract_regions, model.eval())
    (features, boxes), (_, others) = extract([image(0), image(1)])
    (alone, alone_boxes) = extract([image(0)])[0]
    assert features.shape[1] == 1024
    assert boxes is not None
    assert others is not None
    assert len(boxes) == len(features) >= 1
    assert ((others >= 0) & (others <= 1)).all()
    np.testing.assert_allclose(alone_boxes, boxes, atol=1e-4)
    np.testing.assert_allclose(alone, features, atol=1e-4)


def test_the_stored_name_has_weights_and_precision(tmp_path):
    torch.manual_seed(0)
    backbones()["vit"]().save_pretrained(tmp_path / "mine")
    processor(tmp_path / "mine")
    name = load_extractor(f"hf:{tmp_path / 'mine'}").name
    bf16 = load_extractor(f"hf:{tmp_path / 'mine'}", ComputeOptions(precision="bf16"))
    assert name.startswith("hf:mine@")
    assert bf16.name == f"{name}@bf16"
    assert bf16.extract([image(0)])[0][0].dtype == np.float32
    torch.manual_seed(1)
    backbones()["vit"]().save_pretrained(tmp_path / "mine")
    assert load_extractor(f"hf:{tmp_path / 'mine'}").name != name
    published = ExtractorIdentity(name="hf", model="facebook/dinov2-base", precision="bf16", regions=36)
    assert [needs_no_file(identity) for identity in (bf16.identity, published)] == [False, True]
    assert [is_registered(n) for n in ("hf:x", "bottom-up", "mine.py", "scenes")] == [True, True, False, True]


def test_a_folder_with_the_name_of_the_recorded_model_is_named(tmp_path, monkeypatch):
    backbones()["vit"]().save_pretrained(tmp_path / "mine")
    processor(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    recorded = ExtractorIdentity(name="hf", model="mine")
    with pytest.raises(ConfigError, match="but hf:mine is hf:mine@"):
        resolve_extractor(recorded, None, Path("run"), RunOptions())
