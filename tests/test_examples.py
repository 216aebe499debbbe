"""The programs of examples/ run and print what they promise."""

from __future__ import annotations

import ast
import re
import runpy
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import legenda
from command_results import write_captioned_images
from legenda.data.captions import ScenesData
from legenda.data.scenes import draw_scene, make_scene
from legenda.run_folder import ASSETS

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def load(name: str) -> dict[str, Any]:
    """Return the variables of an example without running its main function."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)


@pytest.fixture(scope="module")
def scenes_run(make_run):
    return make_run("ngsan", ScenesData(train=40, validation=2))


def test_caption_images(scenes_run, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["caption_images.py", "--model", str(scenes_run)])
    load("caption_images")["main"]()
    name, caption = capsys.readouterr().out.strip().split(": ")
    assert name.endswith("scene.png")
    assert caption


def test_gradio_app():
    image = Image.open(ASSETS / "photographs" / "cat.jpg")
    text, (shown, things) = load("gradio_app")["annotate"](legenda.open("photo"), image)
    assert "cat" in text
    assert shown is image
    (box, label) = things[0]
    assert label.startswith("cat ")
    assert 0 <= box[0] < box[2] <= image.width
    assert 0 <= box[1] < box[3] <= image.height


@pytest.mark.slow
def test_train_on_csv(tmp_path, capsys):
    scores = load("train_on_csv")["main"](tmp_path)
    assert scores["CIDEr-D"] > 0.1
    assert capsys.readouterr().out.count("val") >= 3
    assert (tmp_path / "run" / "model.safetensors").is_file()


@pytest.mark.usefixtures("forget_plugins")
def test_custom_attention(tmp_path, capsys):
    best = load("custom_attention")["main"](tmp_path / "run", scenes=40, epochs=1)
    assert best >= 0
    assert "CIDEr-D" in capsys.readouterr().out
    assert '"attention": "cosine"' in (tmp_path / "run" / "config.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_serve(scenes_run, capsys):
    pytest.importorskip("uvicorn", reason="needs the extra serve")
    answer = load("serve")["main"](scenes_run)
    assert len(answer["captions"]) == 1
    assert answer["captions"][0]["text"] in capsys.readouterr().out


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> str:
    """A ResNet-18 of torchvision with random weights, in a file."""
    models = pytest.importorskip("torchvision", reason="needs the extra vision").models
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("backbone") / "weights.safetensors"
    save_file(models.resnet18(weights=None).state_dict(), path)
    return f"torchvision:resnet18:{path}"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_captioned_images(tmp_path_factory.mktemp("table"), 12)


@pytest.mark.slow
def test_train_from_images(table, backbone, tmp_path):
    scores = load("train_from_images")["main"](table, tmp_path, backbone, image_size=64)
    assert set(scores) == {"frozen", "trained"}
    assert (tmp_path / "trained" / "model.safetensors").is_file()


def test_train_from_parquet(backbone, tmp_path):
    pytest.importorskip("datasets", reason="needs the extra hub")
    assert load("train_from_parquet")["main"](tmp_path, images=12, backbone=backbone) >= 0
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_compare_captioners_and_required_words(scenes_run, tmp_path):
    draw_scene(make_scene("val", 0)).save(tmp_path / "scene.png")
    captions = load("compare_captioners")["main"](tmp_path / "scene.png", [str(scenes_run)])
    assert captions[str(scenes_run)]
    free, constrained = load("required_words")["main"](tmp_path / "scene.png", ["red|blue", "circle"], scenes_run)
    assert free == captions[str(scenes_run)]
    assert {"circle"} < set(constrained.split())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_says_what_it_does(path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [path.name, "--help"])
    with suppress(SystemExit):
        runpy.run_path(str(path), run_name="__main__")
    first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split(":")[0].split()
    assert " ".join(first[:6]) in " ".join(re.sub(r"[│\x1b]", " ", capsys.readouterr().out).split())


@pytest.mark.parametrize("name", ["train_from_images", "train_from_parquet", "compare_captioners", "required_words"])
def test_short_examples_have_at_most_30_lines(name):
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 30
