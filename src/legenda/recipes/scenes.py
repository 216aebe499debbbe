"""Recipes on the embedded scenes: small models that train in a minute or two and differ in their attention."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from legenda.datasets.captions import ScenesData
from legenda.models import describe_model, list_models
from legenda.recipes.recipe import Recipe
from legenda.training.config import TrainingConfig
from legenda.training.schedules import StepDecay

_SMALL = {
    "dim": 64,
    "num_heads": 4,
    "num_layers": 2,
    "decoder_layers": 2,
    "ff_dim": 128,
    "geometry_dim": 32,
    "additive_dim": 64,
}
"""The sizes of all models on scenes, as far as each has them; dropout is 0, as there are many scenes."""

_TRAINING = TrainingConfig(
    epochs=23,
    batch_size=64,
    captions_per_image=1,
    schedule=StepDecay(learning_rate=3e-3, warmup_steps=100, decay=0.5, decay_after=(7, 10, 13, 17)),
    eval_every=2,
    monitor="truth",
)

_ATTENTIONS = {
    "absolute": ("transformer", {"geometry": "absolute"}, "positions added to the regions"),
    "content": ("gsan", {"geometry": "content"}, "content-independent geometry"),
    "key": ("gsan", {"geometry": "key"}, "key-dependent geometry"),
}
"""Rows of NG-SAN's tables that are not named models."""


def scenes_recipes() -> dict[str, Recipe]:
    """Return one recipe for each named model; only the model differs."""
    named = {name: (name, {}, describe_model(name).summary) for name in list_models()}
    return {
        f"scenes.{name}": _on_scenes(f"scenes.{name}", model, options, f"scenes: {summary}")
        for name, (model, options, summary) in (named | _ATTENTIONS).items()
    }


def make_scenes_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe `scenes.NAME` with a recipe's model on the embedded scenes, in one stage.

    The model has the small sizes of the other models there, except where the recipe overrides them.
    """
    return _on_scenes(
        f"scenes.{recipe.name}", recipe.model, recipe.model_overrides, f"on scenes, small: {recipe.summary}"
    )


def _on_scenes(name: str, model: str, options: Mapping[str, Any], summary: str) -> Recipe:
    return Recipe(
        name=name,
        summary=summary,
        model=model,
        model_overrides={**_sizes(model), **options},
        data=ScenesData(),
        stages=(_TRAINING,),
    )


def _sizes(model: str) -> dict[str, Any]:
    """Return the sizes that a model has and its name does not fix, with dropout 0."""
    entry = describe_model(model)
    rates = {field.name: 0.0 for field in fields(entry.config) if field.name.endswith("dropout")}
    defaults = {field.name: field.default for field in fields(entry.config)}
    sizes = {name: value for name, value in _SMALL.items() if name in defaults and name not in entry.settings}
    return sizes | {name: value for name, value in rates.items() if isinstance(defaults[name], float)}
