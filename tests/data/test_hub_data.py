"""Data sets through the library `datasets`: local parquet, streamed and copied, and what is wrong with one."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from legenda.cli.main import main
from legenda.data.hub import HubData
from legenda.errors import ConfigError, DataError

datasets = pytest.importorskip("datasets", reason="needs the extra hub")
ROWS = 23


def encoded(number: int) -> bytes:
    if number == 5:
        return b"no image"
    content = io.BytesIO()
    Image.new("RGB", (20, 30), (10 * number, 0, 0)).save(content, format="PNG")
    return content.getvalue()


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """23 images of a shade of red of their own; the sixth does not decode."""
    folder = tmp_path_factory.mktemp("parquet")
    rows = {
        "image": [{"bytes": encoded(number), "path": None} for number in range(ROWS)],
        "texts": [{"raw": [f"a red number {number}", "red"]} for number in range(ROWS)],
        "cocoid": [100 + number for number in range(ROWS)],
        "part": ["test" if number >= 20 else "train" for number in range(ROWS)],
    }
    features = datasets.Features(
        image=datasets.Image(),
        texts={"raw": datasets.List(datasets.Value("string"))},
        cocoid=datasets.Value("int64"),
        part=datasets.Value("string"),
    )
    for name, part in (("a", slice(0, 12)), ("b", slice(12, None))):
        table = datasets.Dataset.from_dict({key: values[part] for key, values in rows.items()}, features=features)
        table.to_parquet(folder / f"{name}.parquet")
    return folder / "*.parquet"


def options(parquet, **changes) -> HubData:
    values = {"files": parquet, "caption_column": "texts.raw", "min_count": 1, "train_backbone": True, "image_size": 8}
    return HubData(**{**values, "id_column": "cocoid", "backbone": "pixels:8", "window": 4, **changes})


@pytest.mark.parametrize("streamed", [True, False])
def test_images_are_read_by_position(parquet, streamed, caplog):
    data = options(parquet, streaming=streamed, window=4 if streamed else 0, split_column="part")
    train, test = data.split("train"), data.split("test")
    assert len(test) == 3
    assert sorted(train.ids + data.split("val").ids) == [str(100 + row) for row in range(20)]
    rows = [int(name) - 100 for name in train.ids]
    assert rows == sorted(rows)
    assert all(captions[0].endswith(f" number {row}") for captions, row in zip(train.references, rows, strict=True))
    for positions in ([3, 1], [0], [5, 7, 4], [15, 2]):  # forward, back, and across windows
        reds = train.read(np.array(positions)).features[:, 0, 0] * 255
        assert reds.tolist() == pytest.approx([127 if rows[p] == 5 else 10 * rows[p] for p in positions], abs=1e-3)
    assert "105 of" in caplog.text
    assert "is gray in the training" in caplog.text
    assert (test.read(np.array([2])).features[0, 0, 0] * 255).item() == pytest.approx(220)


def test_the_order_of_a_stream_stays_in_its_windows(parquet):
    train = options(parquet).split("train")
    assert train.window == 4
    order = np.random.default_rng(0).permutation(len(train))
    order = order[(order // train.window).argsort(kind="stable")]
    assert sorted(order.tolist()) == list(range(len(train)))
    assert all(abs(position - place) < 4 for place, position in enumerate(order.tolist()))


def test_a_frozen_backbone_leaves_out_what_does_not_decode(parquet, tmp_path, caplog):
    data = options(parquet, train_backbone=False, features=tmp_path / "f.safetensors")
    module = data.open(lambda _: None)
    names = {*module.train.ids, *module.validation.ids}
    assert names == {str(100 + number) for number in range(ROWS) if number != 5}
    assert "it is left out" in caplog.text
    last = module.train.ids.index("122")
    assert (module.train.read(np.array([last])).features[0, 0, 0] * 255).item() == pytest.approx(220, abs=0.1)
    before = (tmp_path / "f.safetensors").stat().st_mtime_ns
    assert len(data.split("val")) == len(module.validation)
    assert (tmp_path / "f.safetensors").stat().st_mtime_ns == before


def test_a_backbone_is_trained_from_a_stream(parquet, tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 6], depths=[1, 1], layer_type="basic")
    transformers.ResNetModel(config).save_pretrained(tmp_path / "net")
    transformers.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(tmp_path / "net")
    data = [f"data.files={parquet}", "data.caption_column=texts.raw", "data.min_count=1", "data.window=6"]
    data += [f"data.backbone=hf:{tmp_path / 'net'}", "data.train_backbone=true", "data.image_size=16"]
    sizes = ["model.dim=8", "model.num_heads=2", "model.num_layers=1", "model.ff_dim=8", "training.epochs=1"]
    monkeypatch.chdir(tmp_path)
    main(["train", "scenes.transformer", "--out", "run", "data.kind=hf", *data, *sizes, "training.monitor=ROUGE-L"])
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["extractor"] == {"name": "pixels", "model": "16"}
    main(["evaluate", "run", "--split", "val"])
    assert len(json.loads((tmp_path / "run" / "evaluation_val.json").read_text())["captions"]) == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"caption_column": "caption"}, "has no column 'caption'; choose from"),
        ({"image_column": "picture"}, "has no column 'picture'"),
        ({"caption_column": "cocoid"}, "has no text in cocoid"),
        ({"splits": {"train": "training"}}, "has the splits train; name them in data.splits"),
        ({"files": Path("nowhere/*.parquet")}, "does not exist"),
    ],
)
def test_wrong_names_are_one_sentence(parquet, changes, message):
    with pytest.raises(DataError, match=message):
        options(parquet, **changes).split("train")


def test_a_source_is_a_name_or_files():
    with pytest.raises(ConfigError, match=r"name.*files"):
        HubData()
