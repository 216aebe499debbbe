"""Recipes for Flickr8k: models small enough to train on two cores in half an hour."""

from pathlib import Path

from legenda.data.caption_sets import KarpathyData
from legenda.recipes.recipe import Recipe
from legenda.training.schedules import StepDecay
from legenda.training.settings import Training

_SMALL = {"dim": 256, "num_heads": 4, "num_layers": 2, "ff_dim": 512, "dropout": 0.2}

_DATA = KarpathyData(annotations=Path("dataset_flickr8k.json.gz"), features=Path("flickr8k.safetensors"))

_TRAINING = Training(
    epochs=12,
    batch_size=12,
    rows=5,
    max_words=20,
    schedule=StepDecay(rate=5e-4, warmup_steps=500, decay=0.4, decay_after=(7, 9, 11)),
    label_smoothing=0.1,
    precision="bf16-mixed",
)


def flickr8k_recipes() -> dict[str, Recipe]:
    """Plain and normalised, geometry-aware attention, alike in all else."""
    return {
        f"flickr8k.{model}": Recipe(
            name=f"flickr8k.{model}",
            summary=f"Flickr8k photographs, small {model}",
            model=model,
            options=_SMALL,
            data=_DATA,
            training=_TRAINING,
        )
        for model in ("transformer", "ngsan")
    }
