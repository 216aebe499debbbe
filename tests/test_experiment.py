"""Training from Python gives what the command gives."""

import json

import pytest

import legenda
from legenda.cli.main import main
from legenda.compute import has_bf16
from legenda.data.scenes import draw_scene, make_scene
from legenda.recipes import read_recipe

pytestmark = pytest.mark.usefixtures("one_thread")

FIELDS = {
    "model": {"dim": 8, "num_heads": 2, "num_layers": 1, "ff_dim": 8, "geometry_dim": 4},
    "data": {"train": 12, "validation": 3, "test": 4},
    "training": {"epochs": 1, "batch_size": 4, "captions_per_image": 2, "eval_beam_size": 1},
}


def test_python_and_the_command_train_the_same_run(tmp_path):
    precision = "bf16" if has_bf16() else "float32"
    result = legenda.train("scenes.ngsan", out=tmp_path / "python", device="cpu", precision=precision, **FIELDS)
    options = [f"{section}.{name}={value}" for section, fields in FIELDS.items() for name, value in fields.items()]
    common = ["--device", "cpu", "--precision", precision]
    main(["train", "scenes.ngsan", "--out", str(tmp_path / "command"), *common, *options])
    for name in ("model.safetensors", "vocabulary.txt"):
        assert (tmp_path / "python" / name).read_bytes() == (tmp_path / "command" / name).read_bytes()
    python, command = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("python", "command"))
    assert python | {"environment": None} == command | {"environment": None}  # it holds the date
    assert python["training"]["precision"] == precision
    again = legenda.train(read_recipe(tmp_path / "python" / "config.json"), out=tmp_path / "again", device="cpu")
    assert (again.folder / "model.safetensors").read_bytes() == (result.folder / "model.safetensors").read_bytes()
    assert json.loads((again.folder / "config.json").read_text()) | {"environment": None} == python | {
        "environment": None
    }
    caption = legenda.open(result.folder, device="cpu").caption(draw_scene(make_scene("fresh", 0)))
    assert len(caption.tokens) == len(caption.words)
