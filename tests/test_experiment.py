"""Training from Python gives what the command gives."""

import json

import pytest

import legenda
from legenda.cli.main import main
from legenda.data.scenes import draw_scene, make_scene
from legenda.papers import get_recipe
from legenda.training import Noam

pytestmark = pytest.mark.usefixtures("one_thread")

FIELDS = {
    "model": {"dim": 8, "num_heads": 2, "num_layers": 1, "ff_dim": 8, "geometry_dim": 4},
    "data": {"train": 12, "validation": 3, "test": 4},
    "training": {"epochs": 1, "batch_size": 4, "captions_per_image": 2, "eval_beam_size": 1},
}


def test_python_and_the_command_train_the_same_run(tmp_path):
    result = legenda.train("scenes.ngsan", out=tmp_path / "python", device="cpu", precision="bf16", **FIELDS)
    options = [
        part
        for section, fields in FIELDS.items()
        for name, value in fields.items()
        for part in (f"{section}.{name}={value}",)
    ]
    common = ["--device", "cpu", "--precision", "bf16"]
    main(["train", "scenes.ngsan", "--out", str(tmp_path / "command"), *common, *options])
    for name in ("model.safetensors", "vocabulary.txt"):
        assert (tmp_path / "python" / name).read_bytes() == (tmp_path / "command" / name).read_bytes()
    python, command = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("python", "command"))
    assert python | {"environment": None} == command | {"environment": None}  # it holds the date
    assert python["stages"][0]["precision"] == "bf16-mixed"
    caption = legenda.open(result.folder, device="cpu").caption(draw_scene(make_scene("fresh", 0)))
    assert len(caption.tokens) == len(caption.words)


def test_fields_of_every_part_are_changed():
    recipe = get_recipe("scenes.ngsan")
    changed = recipe.override(
        {
            "model": {"decoder": "transformer", "dim": 8},
            "data": {"train": 12},
            "training": {"schedule": "noam", "max_grad_norm": 5},
        }
    )
    assert changed.model_overrides["decoder"] == {"name": "transformer"}
    assert changed.model_overrides["dim"] == 8
    assert changed.data.train == 12
    assert (changed.stages[0].schedule, changed.stages[0].max_grad_norm) == (Noam(), 5.0)
    nested = {"decoder": {"name": "xlan"}}
    assert recipe.override({"model": nested}).model_overrides["decoder"] == {"name": "xlan"}
    assert recipe.override({"training": {"schedule": {"learning_rate": 0.5}}}).stages[0].schedule.learning_rate == 0.5
    same = recipe.override({})
    assert (same.data, same.stages) == (recipe.data, recipe.stages)
