"""Recipes on the embedded scenes: small models that learn in a minute or two what their attention can express."""

from legenda.data.caption_sets import ScenesData
from legenda.recipes.recipe import Recipe
from legenda.training.schedules import StepDecay
from legenda.training.settings import Training

_SMALL = {"dim": 64, "num_heads": 4, "num_layers": 2, "ff_dim": 128, "geometry_dim": 32, "dropout": 0.0}

_TRAINING = Training(
    epochs=23,
    batch_size=64,
    rows=1,
    schedule=StepDecay(rate=3e-3, warmup_steps=100, decay=0.5, decay_after=(7, 10, 13, 17)),
    validate_every=2,
    best_by="truth",
)

_ATTENTIONS = {
    "transformer": ("transformer", {}, "plain self-attention"),
    "absolute": ("transformer", {"geometry": "absolute"}, "places added to the regions"),
    "nsan": ("nsan", {}, "normalised queries"),
    "content": ("gsan", {"geometry": "content"}, "content-independent geometry"),
    "gsan": ("gsan", {}, "query-dependent geometry"),
    "key": ("gsan", {"geometry": "key"}, "key-dependent geometry"),
    "ngsan": ("ngsan", {}, "normalised queries and query-dependent geometry"),
}


def scenes_recipes() -> dict[str, Recipe]:
    """One recipe for each attention of NG-SAN's tables, alike in all but the attention."""
    return {
        f"scenes.{name}": Recipe(
            name=f"scenes.{name}",
            summary=f"scenes: {summary}",
            model=model,
            options={**_SMALL, **options},
            data=ScenesData(),
            training=_TRAINING,
        )
        for name, (model, options, summary) in _ATTENTIONS.items()
    }
