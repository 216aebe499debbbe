"""What the papers' recipes on COCO share: the data, and a recipe for each named model of a paper."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from legenda.datasets.captions import KarpathyData
from legenda.models import describe_model, list_models
from legenda.recipes.recipe import Recipe
from legenda.training.config import TrainingConfig

Stages = tuple[TrainingConfig, TrainingConfig]
"""Cross-entropy, and self-critical training after it."""


def coco(min_count: int) -> KarpathyData:
    """Karpathy's splits, with the words of all of them as the releases count them."""
    return KarpathyData(
        annotations=Path("dataset_coco.json"),
        features=Path("coco.safetensors"),
        min_count=min_count,
        vocabulary="all",
    )


def recipe(
    name: str, summary: str, model: str, stages: Stages, data: KarpathyData, options: Mapping[str, Any] | None = None
) -> Recipe:
    """A model on COCO in two stages."""
    training, fine_tuning = stages
    return Recipe(
        name=name,
        summary=summary,
        model=model,
        options=options or {},
        data=data,
        training=training,
        fine_tuning=fine_tuning,
    )


def paper_recipes(pattern: str, stages: Callable[[str], Stages], data: KarpathyData) -> dict[str, Recipe]:
    """`coco.MODEL` for every named model that matches, each with its own stages."""
    found = {}
    for model in list_models(pattern):
        entry = describe_model(model)
        name = f"coco.{model}"
        row = f" ({entry.paper}, {entry.row})" if entry.row else f" ({entry.paper})"
        found[name] = recipe(name, f"COCO: {entry.summary}{row}", model, stages(model), data)
    return found


def table_row(
    name: str, model: Recipe, *, told: str = "", options: Mapping[str, Any] | None = None, fine_tuned: bool = True
) -> Recipe:
    """A named model's recipe as a row of a table, with other options where the row has them.

    told: what these change, for the summary. fine_tuned: whether the table's scores are those after the second stage.
    """
    return replace(
        model,
        name=name,
        summary=f"COCO: {describe_model(model.model).summary}{told}",
        options={**model.options, **(options or {})},
        fine_tuning=model.fine_tuning if fine_tuned else None,
    )
