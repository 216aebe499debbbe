"""Recipes as JSON: what `legenda recipes NAME` prints and `legenda train --config FILE` reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from legenda.config import merge, to_json
from legenda.data.registry import DATASETS
from legenda.errors import ConfigError
from legenda.io import read_json
from legenda.recipes.recipe import Data, Recipe
from legenda.training.config import TrainingConfig
from legenda.training.schedules import SCHEDULES

_HINT = "give a file as legenda recipes NAME prints it"


def recipe_to_json(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as JSON can hold it; the kinds of the data and of the schedules are named."""
    stages = [
        {**to_json(stage), "schedule": {"kind": SCHEDULES.name_of(type(stage.schedule)), **to_json(stage.schedule)}}
        for stage in recipe.stages
    ]
    data = {"kind": DATASETS.name_of(type(recipe.data)), **to_json(recipe.data)}
    rest = {name: to_json(getattr(recipe, name)) for name in ("name", "summary", "model", "model_overrides", "task")}
    return {**rest, "data": data, "stages": stages}


def read_recipe(path: Path) -> Recipe:
    """Return the recipe of a JSON file; raise ConfigError or DataError, naming the file, where it holds none."""
    content = read_json(path, _HINT)
    try:
        if not isinstance(content, dict) or not isinstance(content.get("stages"), list):
            raise ConfigError(f"it holds no recipe; {_HINT}")
        stages = tuple(read_stage(stage, f"stages[{index}]") for index, stage in enumerate(content["stages"]))
        return merge(Recipe, {**content, "data": read_data(content.get("data"), "data"), "stages": stages}, "a recipe")
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def read_data(settings: Any, name: str) -> Data:
    """Return the settings of a data set; their `kind` is a name of `DATASETS`."""
    kind, rest = _kind(settings, name)
    return merge(DATASETS.get(kind), rest, name)


def read_stage(settings: Any, name: str) -> TrainingConfig:
    """Return the settings of a training stage; the `kind` of its schedule is a name of `SCHEDULES`."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{name} has no settings; {_HINT}")
    kind, rest = _kind(settings.get("schedule"), f"{name}.schedule")
    schedule = merge(SCHEDULES.get(kind), rest, f"{name}.schedule")
    return merge(TrainingConfig, {**settings, "schedule": schedule}, name)


def _kind(settings: Any, name: str) -> tuple[str, dict[str, Any]]:
    """Return the kind and the other settings."""
    if not isinstance(settings, Mapping) or not isinstance(settings.get("kind"), str):
        raise ConfigError(f"{name} names no kind; {_HINT}")
    return settings["kind"], {key: value for key, value in settings.items() if key != "kind"}
