"""Recipes for Flickr8k: every paper's model, small enough for two cores, in two stages of equal length."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from legenda.datasets.captions import KarpathyData
from legenda.models import describe_model
from legenda.recipes.recipe import Recipe
from legenda.tasks.config import SelfCriticalConfig
from legenda.training.config import TrainingConfig
from legenda.training.schedules import Constant, Cosine

_MODELS = ("transformer", "nsan", "gsan", "ngsan", "aoanet", "xlan", "xtransformer", "mdsan")

_SIZES = {"dim": 192, "num_heads": 4, "num_layers": 2, "decoder_layers": 2, "ff_dim": 384}
"""The sizes of all models, as far as each has them; X-LAN's decoder keeps its one block."""

_MOST_DROPOUT = 0.1
"""The highest dropout rate; published rates are for four times the channels and ten times the steps."""

_DATA = KarpathyData(annotations=Path("dataset_flickr8k.json.gz"), features=Path("flickr8k.safetensors"), min_count=8)

_CROSS_ENTROPY = TrainingConfig(
    epochs=4,
    batch_size=16,
    captions_per_image=5,
    max_caption_length=16,
    schedule=Cosine(learning_rate=1e-3, total_steps=1500, warmup_steps=150),
    precision="bf16-mixed",
    eval_beam_size=1,
)
"""1,500 steps, one period of the cosine schedule."""

_SELF_CRITICAL = replace(
    _CROSS_ENTROPY,
    epochs=1,
    objective="self_critical",
    self_critical=SelfCriticalConfig(num_samples=3, max_length=16, xe_weight=0.2),
    batch_size=20,
    schedule=Constant(learning_rate=1e-4),
    weight_averaging="ema",
    ema_decay=0.99,
)


def flickr8k_recipes() -> dict[str, Recipe]:
    """Return a recipe in two stages for each of the papers' models; only the model differs."""
    return {
        f"flickr8k.{model}": Recipe(
            name=f"flickr8k.{model}",
            summary=f"Flickr8k photographs, small: {describe_model(model).summary}",
            model=model,
            model_overrides=_options(model),
            data=_DATA,
            stages=(_CROSS_ENTROPY, _SELF_CRITICAL),
        )
        for model in _MODELS
    }


def _options(model: str) -> Mapping[str, Any]:
    """Return small sizes, and lower dropout rates."""
    defaults = {field.name: field.default for field in fields(describe_model(model).config)}
    options: dict[str, Any] = {name: value for name, value in _SIZES.items() if name in defaults}
    if model == "xlan":
        del options["decoder_layers"]
    for name, rate in defaults.items():
        if name.endswith("dropout") and isinstance(rate, float):
            options[name] = min(rate, _MOST_DROPOUT)
    return options
