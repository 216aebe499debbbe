"""Recipes on the embedded scenes: small models that learn in a minute or two what their attention can express."""

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
"""The sizes of all models on scenes, as far as each has them; dropout is 0 everywhere, for scenes are many."""

_TRAINING = TrainingConfig(
    epochs=23,
    batch_size=64,
    captions_per_image=1,
    schedule=StepDecay(learning_rate=3e-3, warmup_steps=100, decay=0.5, decay_after=(7, 10, 13, 17)),
    eval_every=2,
    monitor="truth",
)

_ATTENTIONS = {
    "absolute": ("transformer", {"geometry": "absolute"}, "places added to the regions"),
    "content": ("gsan", {"geometry": "content"}, "content-independent geometry"),
    "key": ("gsan", {"geometry": "key"}, "key-dependent geometry"),
}
"""Rows of NG-SAN's tables that have no name of their own."""


def scenes_recipes() -> dict[str, Recipe]:
    """One recipe for each named model, alike in all but the model."""
    named = {name: (name, {}, describe_model(name).summary) for name in list_models()}
    return {
        f"scenes.{name}": _on_scenes(f"scenes.{name}", model, options, f"scenes: {summary}")
        for name, (model, options, summary) in (named | _ATTENTIONS).items()
    }


def on_scenes(recipe: Recipe) -> Recipe:
    """A recipe's model on the embedded scenes: as small as the others there, learnt as they are, in one stage.

    Its name has `scenes.` before it. What the recipe says of the model holds over the small sizes.
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
    """The sizes that a model has and its name leaves open, and no dropout."""
    entry = describe_model(model)
    rates = {field.name: 0.0 for field in fields(entry.config) if field.name.endswith("dropout")}
    own = {field.name: field.default for field in fields(entry.config)}
    sizes = {name: value for name, value in _SMALL.items() if name in own and name not in entry.settings}
    return sizes | {name: value for name, value in rates.items() if isinstance(own[name], float)}
