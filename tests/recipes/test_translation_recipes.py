"""The recipes of translation."""

import pytest

from legenda.models.registry import build_model
from legenda.recipes import all_recipes

RECIPES = {name: recipe for name, recipe in all_recipes().items() if recipe.task == "translation"}


def test_names():
    assert sorted(RECIPES) == sorted(
        f"{data}.{model}" for data in ("wmt14", "multi30k", "number_words") for model in ("transformer", "nsa")
    )
    assert all(name == recipe.name for name, recipe in RECIPES.items())


@pytest.mark.parametrize("data", ["wmt14", "multi30k", "number_words"])
def test_baseline_and_module_differ_in_the_norm_alone(data):
    base, module = RECIPES[f"{data}.transformer"], RECIPES[f"{data}.nsa"]
    assert (base.stages[0], base.data, base.model_overrides) == (module.stages[0], module.data, module.model_overrides)
    sizes = (
        dict(base.model_overrides)
        if base.model_overrides
        else {"dim": 16, "num_heads": 2, "num_layers": 6, "ff_dim": 16}
    )
    models = [build_model(recipe.model, {**sizes, "vocab_size": 50}) for recipe in (base, module)]
    assert models[0].parameter_count == models[1].parameter_count
    assert [model.config.norm for model in models] == ["none", "in"]
    names = [dict(model.named_parameters()).keys() for model in models]
    assert names[0] == names[1]


def test_wmt14_trains_as_fairseq_does():
    recipe = RECIPES["wmt14.nsa"]
    training = recipe.stages[0]
    assert (training.betas, training.label_smoothing, training.label_smoothing_target) == (
        (0.9, 0.98),
        0.1,
        "non_target",
    )
    assert (training.max_grad_norm, training.max_grad_value, training.weight_decay) == (0.0, 0.0, 0.0)
    rates = [training.schedule.at(step, 1) for step in (0, 4_000, 16_000)]
    assert rates == pytest.approx([1e-7, 5e-4, 2.5e-4])
    steps = training.epochs * 4_560_000 / training.batch_size
    assert 100_000 < steps < 120_000
    assert (training.weight_averaging, training.epochs - training.averaging_start_epoch) == (
        "swa",
        4,
    )  # the last five
    assert not recipe.model_overrides  # the model's defaults are Transformer-Base
