"""Rows of tables with identical configurations, which are trained once."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Literal

from legenda.errors import ConfigError
from legenda.models import describe_model
from legenda.models.registry import configure
from legenda.recipes import get_recipe
from legenda.recipes.recipe import Recipe
from legenda.recipes.tables import all_tables

Stages = Literal["all", "first"]


def shared_recipe(recipe: str, stages: Stages, prefix: str = "") -> tuple[str, Stages]:
    """Return the first recipe, with its stages, among the rows of all tables that trains the same configuration.

    prefix: that of the recipes' names, "scenes." for the small models. Recipes that end with cross-entropy come before
    first stages of others. Raise ConfigError where the prefix is for captioning only.
    """
    found = get_recipe(recipe)
    if prefix and found.task != "captioning":
        raise ConfigError(f"{recipe} has no small model on the embedded scenes, as captioning has; leave out --scenes")
    found = get_recipe(prefix + recipe)
    return _first_rows(prefix)[_configuration(found, "all" if len(found.stages) == 1 else stages)]


@cache
def _first_rows(prefix: str) -> dict[str, tuple[str, Stages]]:
    rows = [(row.recipe, table.stages) for table in all_tables().values() for row in table.rows if row.recipe]
    found: dict[str, tuple[str, Stages]] = {}
    for name, stages in sorted(rows, key=lambda row: row[1] == "first"):
        with suppress(ConfigError):  # other tasks than captioning have no small models by that prefix
            recipe = get_recipe(prefix + name)
            kept: Stages = "all" if len(recipe.stages) == 1 else stages
            found.setdefault(_configuration(recipe, kept), (recipe.name, kept))
    return found


def _configuration(recipe: Recipe, stages: Stages) -> str:
    """Return a text that is equal for equal models, data and stages."""
    kept = recipe.select_stages(stages)
    config = describe_model(recipe.model).config
    derived = {field: 1 for field in config.derived if field in config.model_fields}
    model = configure(recipe.model, {**recipe.model_overrides, **derived})
    return repr((recipe.task, describe_model(recipe.model).config.__qualname__, model, recipe.data, kept.stages))
