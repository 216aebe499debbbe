"""The library's recipes, which are tables in TOML files: one file for each paper, task or small data set.

    [data.NAME]      the settings of a data set; its `kind` is a name of `legenda.data.DATASETS`
    [training.NAME]  the settings of a training stage; the `kind` of its `schedule` is a name of `SCHEDULES`
    [sizes.NAME]     fields of models' configurations: a model gets those that it has and that its name does not fix;
                     `max_dropout` limits all its dropout rates
    [[recipes]]      recipes with the same data, stages and sizes, one for each of the `rows`

A part may be used in all files; with `like`, it has the settings of another part where it does not name them. A row is
[row, model, label, overrides], the last two optional, or a pattern such as "mdsan*": a row for each of these models.
The name and the summary of a recipe are formats of `row`, `model`, `label` (the model's summary where it is missing),
`summary` (the model's) and `source` (the model's paper and its row there).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from legenda.config import merge
from legenda.data.registry import DATASETS
from legenda.models import describe_model, list_models
from legenda.recipes.recipe import Data, Recipe
from legenda.training.config import TrainingConfig

_FILES = (
    "scenes",
    "flickr8k",
    "photo",
    "ngsan",
    "aoanet",
    "xlan",
    "mdsan",
    "baselines",
    "vqa",
    "grounding",
    "translation",
    "video",
)


def library_recipes() -> dict[str, Recipe]:
    """Return the recipes of all files by name, with those of the models that users registered."""
    recipes = [recipe for content in _contents() for group in content["recipes"] for recipe in _read_group(group)]
    return {recipe.name: recipe for recipe in recipes}


def _read_group(group: Mapping[str, Any]) -> Iterator[Recipe]:
    for row in _rows(group["rows"]):
        model = row["model"]
        entry = describe_model(model)
        source = f"{entry.paper}, {entry.row}" if entry.row else entry.paper
        words = {**row, "label": row.get("label") or entry.summary, "summary": entry.summary, "source": source}
        sizes = _sizes_of(model, _part("sizes", group["sizes"])) if "sizes" in group else {}
        yield Recipe(
            name=group["name"].format(**words),
            summary=group["summary"].format(**words),
            model=model,
            model_overrides=sizes | row.get("overrides", {}),
            data=_data(group["data"]),
            stages=tuple(_stage(name) for name in group["stages"]),
            task=group.get("task", "captioning"),
        )


def _rows(rows: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the fields of each row; a pattern of models' names stands for a row of each model."""
    for row in rows:
        if isinstance(row, str):
            yield from ({"row": model, "model": model} for model in list_models(row))
        else:
            yield dict(zip(("row", "model", "label", "overrides"), row, strict=False))


def _sizes_of(model: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return those sizes that a model has and its name does not fix, and its dropout rates above `max_dropout`."""
    entry = describe_model(model)
    defaults = {name: field.default for name, field in entry.config.model_fields.items()}
    limit = sizes.get("max_dropout", math.inf)
    rates = {name: rate for name, rate in defaults.items() if name.endswith("dropout") and isinstance(rate, float)}
    return {
        **{name: value for name, value in sizes.items() if name in defaults and name not in entry.settings},
        **{name: limit for name, rate in rates.items() if rate > limit},
    }


@cache
def _data(name: str) -> Data:
    settings = _part("data", name)
    return merge(DATASETS.get(settings["kind"]), settings, f"data.{name}")


@cache
def _stage(name: str) -> TrainingConfig:
    return merge(TrainingConfig, _part("training", name), f"training.{name}")


def _part(table: str, name: str) -> dict[str, Any]:
    """Return the settings of a named part over those of the part that it is like."""
    part = dict(next(content[table][name] for content in _contents() if name in content.get(table, {})))
    base = part.pop("like", None)
    return _part(table, base) | part if base else part


@cache
def _contents() -> tuple[dict[str, Any], ...]:
    folder = files("legenda.recipes")
    return tuple(tomllib.loads(folder.joinpath(f"{name}.toml").read_text(encoding="utf-8")) for name in _FILES)
