"""The papers' recipes on COCO: their data, and a recipe for each named model of a paper."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from legenda.datasets.captions import KarpathyData
from legenda.models import describe_model, list_models
from legenda.recipes.recipe import Recipe
from legenda.training.config import TrainingConfig

Stages = tuple[TrainingConfig, TrainingConfig]
"""Cross-entropy, then self-critical training."""


def coco(min_count: int) -> KarpathyData:
    """Return Karpathy's splits; as in the releases, the vocabulary counts the words of all splits."""
    return KarpathyData(
        annotations=Path("dataset_coco.json"),
        features=Path("coco.safetensors"),
        min_count=min_count,
        vocabulary="all",
    )


def recipe(
    name: str, summary: str, model: str, stages: Stages, data: KarpathyData, overrides: Mapping[str, Any] | None = None
) -> Recipe:
    """Return the recipe of a model on COCO."""
    return Recipe(
        name=name,
        summary=summary,
        model=model,
        model_overrides=overrides or {},
        data=data,
        stages=stages,
    )


def paper_recipes(pattern: str, stages: Callable[[str], Stages], data: KarpathyData) -> dict[str, Recipe]:
    """Return `coco.MODEL` for every named model that matches a pattern. stages: those of a model, by its name."""
    recipes = {}
    for model in list_models(pattern):
        entry = describe_model(model)
        name = f"coco.{model}"
        row = f" ({entry.paper}, {entry.row})" if entry.row else f" ({entry.paper})"
        recipes[name] = recipe(name, f"COCO: {entry.summary}{row}", model, stages(model), data)
    return recipes


def table_row(
    name: str, model: Recipe, *, change: str = "", overrides: Mapping[str, Any] | None = None, fine_tuned: bool = True
) -> Recipe:
    """Return the recipe of a named model as a row of a table.

    overrides: further changes of the model's configuration; change: describes them in the summary. fine_tuned: whether
    the scores of the table are those after the second stage.
    """
    return replace(
        model,
        name=name,
        summary=f"COCO: {describe_model(model.model).summary}{change}",
        model_overrides={**model.model_overrides, **(overrides or {})},
        stages=model.stages if fine_tuned else model.stages[:1],
    )
