"""Recipes for Flickr8k: every paper's model, small enough for two cores, in two stages and with one budget."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from legenda.data.caption_sets import KarpathyData
from legenda.models import describe_model
from legenda.recipes.recipe import Recipe
from legenda.training.schedules import Constant, StepDecay
from legenda.training.settings import SelfCritical, Training

_MODELS = ("transformer", "nsan", "gsan", "ngsan", "aoanet", "xlan", "xtransformer", "mdsan")

_SIZES = {"dim": 256, "num_heads": 4, "num_layers": 2, "decoder_layers": 2, "ff_dim": 512}
"""The sizes of all models, as far as each has them; X-LAN's decoder keeps its one block."""

_MOST_DROPOUT = 0.3
"""Published rates above it are lowered to it: they are meant for four times the channels."""

_DATA = KarpathyData(annotations=Path("dataset_flickr8k.json.gz"), features=Path("flickr8k.safetensors"))

_CROSS_ENTROPY = Training(
    epochs=12,
    batch_size=12,
    rows=5,
    max_words=20,
    schedule=StepDecay(rate=5e-4, warmup_steps=500, decay=0.4, decay_after=(7, 9, 11)),
    label_smoothing=0.1,
    precision="bf16-mixed",
)

_SELF_CRITICAL = replace(
    _CROSS_ENTROPY,
    epochs=1,
    objective="self_critical",
    self_critical=SelfCritical(samples=5, max_length=18, cross_entropy=0.2),
    batch_size=20,
    schedule=Constant(rate=3e-5),
    label_smoothing=0.0,
    average="exponential",
    average_decay=0.99,
)


def flickr8k_recipes() -> dict[str, Recipe]:
    """The papers' models, alike in all else, in two stages."""
    return {
        f"flickr8k.{model}": Recipe(
            name=f"flickr8k.{model}",
            summary=f"Flickr8k photographs, small: {describe_model(model).summary}",
            model=model,
            options=_options(model),
            data=_DATA,
            training=_CROSS_ENTROPY,
            fine_tuning=_SELF_CRITICAL,
        )
        for model in _MODELS
    }


def _options(model: str) -> Mapping[str, Any]:
    """Sizes, and rates of dropout: 0.2 in plain Transformers, whose default is for far more photographs."""
    defaults = {field.name: field.default for field in fields(describe_model(model).config)}
    options: dict[str, Any] = {name: value for name, value in _SIZES.items() if name in defaults}
    if model == "xlan":
        del options["decoder_layers"]
    for name, rate in defaults.items():
        if name.endswith("dropout") and isinstance(rate, float):
            options[name] = min(rate, _MOST_DROPOUT)
    if defaults.get("dropout") == 0.1:
        options["dropout"] = 0.2
    return options
