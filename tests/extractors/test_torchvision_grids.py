"""Grids of torchvision's ResNets, on a tiny random one; the weights' names of the large ones."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F
from torchvision.models import resnet

from legenda.errors import LegendaError
from legenda.extractors import load_extractor
from legenda.extractors.torchvision import extract_grids, load_grid, rename_detectron


def image(seed: int, width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def tiny() -> resnet.ResNet:
    torch.manual_seed(0)
    return resnet.ResNet(resnet.Bottleneck, [1, 1, 1, 1], groups=2, width_per_group=2).eval()


@pytest.fixture
def small(monkeypatch) -> None:
    """Resize the short side of images to 120 pixels."""
    monkeypatch.setattr("legenda.extractors.detection.SHORT_SIDE", 120)


@pytest.mark.usefixtures("small")
def test_a_grid_is_the_pooled_last_map_and_a_batch_equals_its_images_one_by_one():
    images = [image(0, 64, 48), image(1, 48, 64), image(2, 32, 24)]
    model = tiny()
    batch = extract_grids(model, images)
    for (features, boxes), each in zip(batch, images, strict=True):
        ((alone, _),) = extract_grids(model, [each])
        assert features.shape == (49, 2048)
        assert boxes is not None
        assert boxes[8].tolist() == pytest.approx([1 / 7, 1 / 7, 2 / 7, 2 / 7])
        np.testing.assert_allclose(features, alone, rtol=1e-4, atol=1e-5)
    maps: list[torch.Tensor] = []
    model.layer4.register_forward_hook(lambda *arguments: maps.append(arguments[2]))
    ((features, _),) = extract_grids(model, images[:1])
    assert maps[0].shape == (1, 2048, 4, 5)  # 160 x 120 pixels in steps of 32
    pooled = F.adaptive_avg_pool2d(maps[0], 7)[0].permute(1, 2, 0).reshape(49, 2048)
    np.testing.assert_allclose(features, pooled.numpy(), rtol=1e-5)


def to_detectron(name: str) -> str:
    """Return Detectron2's name of a weight of torchvision."""
    *layer, module, part = name.replace("downsample.0", "shortcut").replace("downsample.1", "shortcut.norm").split(".")
    module = f"conv{module[2:]}.norm" if module.startswith("bn") else module
    if layer and layer[0].startswith("layer"):
        prefix = "roi_heads" if layer[0] == "layer4" else "backbone"
        return ".".join([prefix, f"res{int(layer[0][5:]) + 1}", *layer[1:], module, part])
    return f"backbone.stem.{module}.{part}"


@pytest.mark.usefixtures("small")
def test_weights_of_detectron_are_renamed_and_read_bgr(tmp_path):
    model, other = tiny(), tiny()
    state = {n: v for n, v in model.state_dict().items() if not n.startswith("fc.") and "num_batches" not in n}
    foreign = {to_detectron(name): value for name, value in state.items()}
    foreign["backbone.stem.conv1.weight"] = foreign["backbone.stem.conv1.weight"].flip(1)
    renamed = rename_detectron({**foreign, "proposal_generator.rpn_head.conv.weight": torch.ones(1)}, tmp_path)
    assert renamed.keys() == state.keys()
    other.load_state_dict(renamed, strict=False)
    first, second = (extract_grids(each, [image(0, 40, 40)])[0][0] for each in (other, model))
    np.testing.assert_array_equal(first, second)
    with pytest.raises(LegendaError, match="deformable"):
        rename_detectron({**foreign, "backbone.res4.0.conv2_offset.weight": torch.ones(1)}, tmp_path / "x.pth")


@pytest.mark.usefixtures("small")
def test_weights_of_a_file_are_read_and_others_are_refused(tmp_path):
    torch.manual_seed(0)
    model = resnet.resnet18()
    torch.save(model.state_dict(), tmp_path / "w.pth")
    extractor = load_extractor(f"torchvision:resnet18:{tmp_path / 'w.pth'}")
    assert extractor.name.startswith("torchvision:resnet18@")
    ((features, _),) = extractor.extract([image(0, 40, 30)])
    np.testing.assert_allclose(features, extract_grids(model.eval(), [image(0, 40, 30)])[0][0], rtol=1e-5)
    with pytest.raises(LegendaError, match="36"):
        load_extractor(f"torchvision:resnet18:{tmp_path / 'w.pth'}", num_regions=36)
    with pytest.raises(LegendaError, match=r"w\.pth.*resnet50"):
        load_grid("resnet50", tmp_path / "w.pth", torch.device("cpu"))
