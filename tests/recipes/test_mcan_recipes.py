"""The recipes for questions and for grounding are whole, and say what the papers and releases say."""

import pytest
import torch

from legenda.data.expression_configs import SceneExpressionsData
from legenda.data.question_configs import SceneQuestionsData, VqaData
from legenda.models.registry import build_model, describe_model
from legenda.recipes import all_recipes

RECIPES = {name: recipe for name, recipe in all_recipes().items() if recipe.task in ("vqa", "grounding")}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_its_model(name):
    recipe = RECIPES[name]
    assert recipe.name == name
    assert recipe.task == describe_model(recipe.model).task
    assert recipe.stages[0].monitor == "accuracy"
    with torch.device("meta"):
        config = build_model(recipe.model, {**recipe.model_overrides, "vocab_size": 30, "feature_dim": 12}).config
    assert not {*recipe.model_overrides} & {*config.derived}


def test_rows_of_the_papers():
    models = {name: recipe.model for name, recipe in RECIPES.items()}
    assert models["vqa2.mcan_small"] == models["vqa2.online.mcan_small"] == "mcan"
    assert models["vqa2.mcan_dsa_msa"] == "mcan_dsa_msa"
    assert models["vqa2.online.mcan_gsa"] == "mcan_gsa"
    assert {models[f"{name}.mcan_dsa_msa"] for name in ("refcoco", "refcoco_plus", "refcocog")} == {
        "mcan_grounding_dsa_msa"
    }


def test_what_is_learnt_for_which_score():
    parts = {name: recipe.data.train for name, recipe in RECIPES.items() if isinstance(recipe.data, VqaData)}
    assert set(parts) == {name for name in RECIPES if name.startswith("vqa2.")}
    assert all(part == ("train+val+vg" if "online" in name else "train") for name, part in parts.items())


def test_settings_of_the_releases():
    small, large, online, refs = (
        RECIPES[name].stages[0]
        for name in ("vqa2.mcan_small", "vqa2.mcan_large", "vqa2.online.mcan_large", "refcoco.mcan")
    )
    assert [training.schedule.at(0, 4) for training in (small, large, online, refs)] == [1e-4, 7e-5, 5e-5, 1.4e-4]
    assert [training.gradient_accumulation_steps for training in (small, large, online, refs)] == [1, 2, 2, 1]
    assert [training.max_grad_norm for training in (small, large, online, refs)] == [0.0, 0.0, 0.0, 1.0]
    for training in (small, large, online, refs):
        assert (training.epochs, training.batch_size) == (13, 64)
        assert (training.optimizer, training.betas, training.eps) == ("adam", (0.9, 0.98), 1e-9)


def test_recipes_of_scenes_differ_in_nothing_but_the_attention():
    for begin, data in (("vqa.scenes", SceneQuestionsData()), ("grounding.scenes", SceneExpressionsData())):
        found = [recipe for name, recipe in RECIPES.items() if name.startswith(begin)]
        assert len(found) == 3
        assert all(
            (r.data, r.stages[0], r.model_overrides) == (data, found[0].stages[0], found[0].model_overrides)
            for r in found
        )
