"""The recipe of the packaged model of photographs: fine-tuning on a table, and the training behind the package."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import legenda
from legenda.cli.main import main
from legenda.data.captions import CaptionDataset
from legenda.extractors.photo_data import PhotoData
from legenda.models.location import ASSETS, PACKAGED
from legenda.plugins import forget_plugin, load_plugin
from legenda.recipes import get_recipe
from legenda.regions import Regions
from legenda.text import Vocabulary, ptb_tokenize

_PLUGINS = Path(__file__).parents[2] / "benchmarks" / "photo"
_COLORS = {"red": (220, 30, 30), "blue": (30, 60, 220), "green": (20, 160, 40), "white": (240, 240, 240)}


@pytest.fixture
def table(tmp_path):
    """A table of captions of 12 drawn images, without splits."""
    lines = ["file,caption"]
    for number in range(12):
        name, color = list(_COLORS.items())[number % 4]
        Image.new("RGB", (40, 30), color).save(tmp_path / f"{number}.png")
        lines += [f"{number}.png,a {name} wall", f"{number}.png,the {name} side of a house"]
    (tmp_path / "my.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "my.csv"


def test_the_packaged_model_is_fine_tuned_on_a_table_of_captions(table, tmp_path, capsys):
    out = tmp_path / "run"
    options = ["--data.annotations", str(table), "--out", str(out), "--training.epochs", "1"]
    main(["train", "photo", "--init-from", "photo", *options])
    config = json.loads((out / "config.json").read_text())
    assert config["extractor"] == "photo"
    assert table.with_name("my.csv.photo.safetensors").is_file()
    main(["caption", str(tmp_path / "0.png"), "--model", str(out)])
    assert "0.png: " in capsys.readouterr().out
    before, after = legenda.load("photo"), legenda.load(out)
    assert before.vocabulary == after.vocabulary
    assert not torch.equal(before.decoder.embedding.weight, after.decoder.embedding.weight)


def test_a_table_without_validation_gives_every_tenth_image_to_it(table):
    images = PhotoData(annotations=table)._images()
    assert [image.id for image in images if image.split == "val"] == ["9"]
    assert sum(image.split == "train" for image in images) == 11
    table.write_text("\n".join(table.read_text().splitlines()[:5]) + "\n")  # two captions of each of two images
    assert [image.split for image in PhotoData(annotations=table)._images()] == ["train", "val"]


def test_the_recipe_has_the_model_of_the_package():
    config = json.loads((ASSETS / PACKAGED / "config.json").read_text())
    recipe = get_recipe("photo")
    options = config["model"]["options"]
    assert config["model"]["name"] == recipe.model
    assert {name: options[name] for name in recipe.model_overrides if name != "decoder"} == {
        name: value for name, value in recipe.model_overrides.items() if name != "decoder"
    }


@pytest.fixture
def plugin(request):
    """The names of a plugin, which is forgotten after the test."""
    yield vars(load_plugin(_PLUGINS / f"{request.param}.py"))
    forget_plugin(request.param)


@pytest.mark.parametrize("plugin", ["text_pretraining"], indirect=True)
def test_text_pretraining_simulates_predictions(plugin, table, tmp_path):
    names = [path.stem for path in tmp_path.glob("*.png")]
    words = len((ASSETS / PACKAGED / "words.txt").read_text().splitlines())
    shares = np.random.default_rng(0).uniform(0, 0.3, (len(names), words)).astype(np.float16)
    np.savez(tmp_path / "shares.npz", ids=np.array(names), shares=shares)
    captions = [
        f"{number}.jpg,a dog runs along the {place}" for number in range(8) for place in ("beach", "sea", "sand")
    ]
    (tmp_path / "text.csv").write_text("\n".join(["file,caption", *captions]) + "\n")
    data = plugin["PredictedWordsData"](
        captions=tmp_path / "text.csv",
        annotations=table,
        shares=tmp_path / "shares.npz",
        words=ASSETS / PACKAGED,
        images=8,
        validation=2,
        other_count=2,
    ).open(lambda _: None)
    assert (len(data.train), len(data.validation)) == (6, 2)
    assert data.train.references[0] == ("a dog runs along the sand",)
    regions = data.validation.read(np.array([0, 1]))
    assert regions.features.shape == (2, 29, data.feature_dim)
    assert {"dog", "beach"} <= set(data.vocabulary.tokens)


@pytest.mark.parametrize("plugin", ["consensus"], indirect=True)
def test_consensus_rewards_what_similar_images_are_called(plugin, tmp_path):
    kinds = np.arange(40) % 2
    references = tuple(
        (f"a dog runs on the beach {number}",) if kind else (f"two men sit at a table {number}",)
        for number, kind in enumerate(kinds)
    )
    ids = tuple(map(str, range(40)))
    x = np.stack([kinds, 1 - kinds], axis=1).astype(np.float32)
    np.savez(tmp_path / "kernel.npz", ids=np.array(ids), folds=np.arange(40) // 2 % 5, x=x, dense=x)
    split = CaptionDataset(ids, references, lambda _: Regions(None), "test", "test")
    vocabulary = Vocabulary.build([ptb_tokenize(text) for group in references for text in group], min_count=1)
    reward = plugin["Consensus"](split, vocabulary, tmp_path / "kernel.npz")
    captions = ["a dog runs on the beach", "two men sit at a table"]
    rows = [[*vocabulary.encode(caption.split()), vocabulary.eos_token_id] for caption in captions]
    tokens = np.array([[rows[0], rows[1]]] * 2)
    values = reward(np.array([0, 1]), tokens)
    assert values[0, 1] > values[0, 0] + 1
    assert values[1, 0] > values[1, 1] + 1
