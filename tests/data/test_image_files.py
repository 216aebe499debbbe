"""Data read from images: a frozen backbone with a store, one that is trained, and what cannot be read."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import legenda
from command_results import write_captioned_images
from legenda.cli.main import main
from legenda.data import image_files
from legenda.data.image_files import ImageData
from legenda.errors import ConfigError, DataError
from legenda.evaluation.runs import replace_features
from legenda.extractors import load_extractor
from legenda.extractors.backbone import to_pixels
from legenda.models.backbone import load_backbone
from legenda.regions import Regions

transformers = pytest.importorskip("transformers", reason="needs the extra vision")
SIDE = 16
SIZES = ["model.dim=8", "model.num_heads=2", "model.num_layers=1", "model.ff_dim=8"]


def save(model, folder) -> str:
    model.save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(folder)
    return f"hf:{folder}"


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> str:
    """A random ViT of transformers in a folder; its map has 4 x 4 cells."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.ViTConfig(image_size=SIDE, patch_size=4, hidden_dropout_prob=0.0, **sizes)
    return save(transformers.ViTModel(config), tmp_path_factory.mktemp("vit"))


@pytest.fixture(scope="module")
def resnet(tmp_path_factory) -> str:
    """A random ResNet of transformers in a folder."""
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 6], depths=[1, 1], layer_type="basic")
    return save(transformers.ResNetModel(config), tmp_path_factory.mktemp("resnet"))


@pytest.fixture
def table(tmp_path):
    return write_captioned_images(tmp_path, 6)


def options(table, backbone, *, trained: bool) -> list[str]:
    data = ["data.kind=images", f"data.annotations={table}", f"data.backbone={backbone}", "data.min_count=1"]
    if trained:
        data += ["data.train_backbone=true", f"data.image_size={SIDE}"]
    training = ["training.epochs=2", "training.batch_size=3", "training.monitor=ROUGE-L"]
    return ["train", "scenes.transformer", *data, *SIZES, *training]


def test_a_table_that_grows_adds_its_new_images_to_the_store(table, backbone, monkeypatch):
    data = ImageData(annotations=table, backbone=backbone)
    first = data.open_store()
    before = {image: first.read([image]).features.copy() for image in first.ids}
    with table.open("a") as file:
        file.write("new.png,another picture\nbroken.png,a broken one\n")
    Image.new("RGB", (20, 20), "red").save(table.parent / "new.png")
    (table.parent / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.png"):
        data.open_store()
    Image.new("RGB", (20, 20), "blue").save(table.parent / "broken.png")
    second = data.open_store()
    assert second.ids == (*first.ids, "new", "broken")
    for image, features in before.items():
        np.testing.assert_array_equal(second.read([image]).features, features)
    monkeypatch.setattr(image_files, "load_extractor", lambda _: pytest.fail("no image is missing"))
    assert data.open_store().ids == second.ids
    assert not [path for path in table.parent.iterdir() if "added" in path.name]


def test_an_evaluation_from_images_has_the_validation_images_of_a_training(table):
    data = ImageData(annotations=table)
    chosen = tuple(image.id for image in data.split_images() if image.split == "val")
    given = data.with_extractor(load_extractor(f"pixels:{SIDE}"))
    assert given.split("val").ids == chosen
    with pytest.raises(DataError, match="train, val"):
        given.split("test")


def test_a_frozen_backbone_writes_its_features_once(table, backbone, tmp_path):
    out = tmp_path / "run"
    main([*options(table, backbone, trained=False), "--out", str(out)])
    (store,) = table.parent.glob("captions.csv.*.safetensors")
    before = store.stat().st_mtime_ns
    main([*options(table, backbone, trained=False), "--out", str(tmp_path / "again")])
    assert store.stat().st_mtime_ns == before
    assert legenda.load(out).backbone is None
    assert json.loads((out / "config.json").read_text())["extractor"]["name"] == "hf"


@pytest.mark.parametrize("inside", [".", "../photos", "deeper/.."])
def test_the_folder_one_is_in_may_be_the_annotations(tmp_path, monkeypatch, inside):
    (tmp_path / "photos" / "deeper").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "photos")
    for number in range(3):
        Image.new("RGB", (8, 8), (80 * number, 0, 0)).save(f"{number}.png")
        Path(f"{number}.txt").write_text("a picture\n")
    store = ImageData(annotations=Path(inside), backbone="pixels:4").open_store()
    assert store.path.resolve() == tmp_path / "photos.pixels-4.safetensors"
    assert sorted(store.ids) == ["0", "1", "2"]


def test_a_trained_backbone_is_saved_with_the_captioner(table, backbone, tmp_path, capsys):
    out = tmp_path / "run"
    extra = ["data.gradient_checkpointing=true", "training.backbone_rate=1.0"]
    extra += ["training.epochs=12", "training.schedule.learning_rate=0.02"]
    main([*options(table, backbone, trained=True), *extra, "--out", str(out)])
    model, untrained = legenda.load(out), load_backbone(backbone)
    pairs = zip(model.backbone.parameters(), untrained.parameters(), strict=True)
    assert any(not torch.equal(after, before) for after, before in pairs)
    main(["evaluate", str(out), "--split", "val"])
    captions = json.loads((out / "evaluation_val.json").read_text())["captions"]
    capsys.readouterr()
    name, caption = next(iter(captions.items()))
    main(["caption", str(table.parent / f"{name}.png"), "--model", str(out)])
    assert caption
    assert capsys.readouterr().out.strip() == f"{table.parent / name}.png: {caption}"
    report = tmp_path / "report.html"
    main(["report", str(out), "--out", str(report)])
    assert report.stat().st_size > 10_000
    (generated,) = legenda.open(out).caption([table.parent / "0.png"])
    assert generated.boxes.shape == (16, 4)
    main(["export", str(out), "--out", str(tmp_path / "exported"), "--format", "torch"])
    assert (tmp_path / "exported" / "encoder.pt2").is_file()


def test_features_in_place_of_a_trained_backbone_are_refused(table):
    """The model reads pixels; a store that it is given would be ignored."""
    with pytest.raises(ConfigError, match="--features"):
        replace_features(ImageData(annotations=table, train_backbone=True), table.parent / "f.safetensors")


def test_features_of_an_evaluation_that_are_missing_are_not_extracted(table):
    """A training writes the store that it names; an evaluation has it mistyped."""
    with pytest.raises(DataError, match="does not exist"):
        replace_features(ImageData(annotations=table), table.parent / "f.safetensors")


def test_augmentation_and_batch_statistics(resnet):
    network = load_backbone(resnet, augment=True)
    images = Regions(to_pixels([Image.effect_noise((40, 30), 90).convert("RGB")] * 2, SIDE))
    torch.manual_seed(1)
    first, second = network.train()(images).features
    assert not torch.allclose(first, second)
    assert torch.allclose(*network.eval()(images).features)
    assert all(not name.endswith("num_batches_tracked") or not value for name, value in network.state_dict().items())


def test_gradient_checkpointing_keeps_the_gradients(backbone):
    images = Regions(to_pixels([Image.effect_noise((40, 30), 90).convert("RGB")], SIDE))
    gradients = []
    for checkpointing in (False, True):
        network = load_backbone(backbone, gradient_checkpointing=checkpointing).train()
        network(images).features.square().sum().backward()
        gradients.append([p.grad for p in network.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("name", ["timm:resnet10t", "torchvision:mobilenet_v3_small", "timm:vit_tiny_patch16_224"])
def test_networks_of_other_libraries(name, monkeypatch):
    if name.startswith("timm"):
        timm = pytest.importorskip("timm")
        create = timm.create_model
        untrained = lambda name, **options: create(name, **{**options, "pretrained": False})  # noqa: E731
        monkeypatch.setattr(timm, "create_model", untrained)
    monkeypatch.setattr("legenda.models.backbone.load_published", lambda build, *_: build(weights=None))
    network = load_backbone(name, None if "vit" in name else 64)
    regions = network(Regions(to_pixels([Image.new("RGB", (50, 40))], network.config.image_size)))
    assert regions.boxes is not None
    assert regions.features.shape[1] in (4, 196)
    assert type(network)(network.config).load_state_dict(network.state_dict())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torchvision:vit_b_16", "has no feature map"),
        ("torchvision:resnet9999", "cannot be loaded"),
        ("bottom-up:x", "there is no backbone"),
        ("photo", "there is no backbone"),
        ("photo:2", "there is no backbone"),
    ],
)
def test_networks_without_a_map_are_refused(name, message, monkeypatch):
    monkeypatch.setattr("legenda.models.backbone.load_published", lambda build, *_: build(weights=None))
    with pytest.raises(ConfigError, match=message):
        load_backbone(name)


def test_gradient_checkpointing_is_refused_where_a_network_has_none(resnet):
    with pytest.raises(ConfigError, match="gradient checkpointing"):
        load_backbone(resnet, gradient_checkpointing=True)


def test_an_image_that_does_not_decode_is_named(table, backbone):
    (table.parent / "1.png").write_bytes(b"no image")
    data = ImageData(annotations=table, backbone=backbone, train_backbone=True, image_size=SIDE, min_count=1)
    train = data.open(lambda _: None).train
    with pytest.raises(DataError, match=r"1\.png"):
        train.read(np.arange(len(train)))
    frozen = ImageData(annotations=table, backbone=backbone, min_count=1)
    with pytest.raises(DataError, match=r"1\.png"):
        frozen.open(lambda _: None)
