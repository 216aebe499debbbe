"""The programs of examples/ run and print what they promise."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import legenda
from legenda.data.captions import ScenesData
from legenda.models.checkpoint import ASSETS

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
