"""Every recipe trains: one step of each stage on tiny data of its kind."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

import legenda
from default_data import write_default_data
from legenda.papers import all_recipes
from legenda.recipes import stage_names
from legenda.run_folder import STATE
from legenda.training.checkpoint import read_history, read_progress

RECIPES = all_recipes()
REPRESENTATIVES = ("coco.xlan", "refcoco.mcan")
"""Recipes that `make test` steps, too."""

WIDTHS = {"dim": 64, "word_dim": 32, "ff_dim": 64, "additive_dim": 32, "pool_dim": 32, "pooled_dim": 32}
"""Overrides of the widths, without which all steps would take an hour; `test_paper_recipes.py` builds them in full."""

DATA = {
    **{f"{kind}Data": {"train": 8, "validation": 2, "test": 1} for kind in ("Scenes", "MovingScenes")},
    **{f"Scene{kind}Data": {"train": 8, "validation": 2, "test": 1} for kind in ("Questions", "Expressions")},
    "NumberWordsData": {"train": 16, "validation": 2, "test": 1},
}
"""Fewer examples of data that are drawn; data in files have few."""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_default_data(folder)
    return folder


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in REPRESENTATIVES else pytest.mark.slow) for n in RECIPES]
)
def test_every_stage_of_every_recipe_takes_a_step(name, data, tmp_path, monkeypatch, sized):
    monkeypatch.chdir(data)
    recipe = RECIPES[name]
    fields = {stage: {"epochs": 1, "steps_per_epoch": 1} for stage in stage_names(recipe)}
    fields["data"] = DATA.get(type(recipe.data).__name__, {})
    if name.startswith("multi30k."):
        fields["data"] = {"pieces": 60}
    legenda.train(name, out=tmp_path / "run", device="cpu", model=sized(recipe.model, **WIDTHS), **fields)

    progress = read_progress(tmp_path / "run")
    assert (progress.step, progress.stage, progress.finished) == (len(recipe.stages), len(recipe.stages) - 1, True)
    validated = [record["validation"] for record in read_history(tmp_path / "run") if "validation" in record]
    assert len(validated) == len(recipe.stages)
    assert all(torch.tensor(scores["loss"]).isfinite() for scores in validated)
    state = safetensors.torch.load_file(tmp_path / "run" / STATE)
    assert all(tensor.isfinite().all() for tensor in state.values() if tensor.is_floating_point())
    moments = [tensor for key, tensor in state.items() if key.endswith((".exp_avg", ".momentum_buffer"))]
    assert any(tensor.any() for tensor in moments)  # gradients of the last stage
