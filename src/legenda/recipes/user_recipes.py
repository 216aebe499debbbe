"""Recipes in a file of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from legenda.errors import UserError
from legenda.plugins import run_file
from legenda.recipes.recipe import Recipe
from legenda.tasks.rewards import Reward


@dataclass(frozen=True, eq=False)
class OwnRecipes:
    """What a file holds: its recipes by their names, and its rewards by theirs."""

    source: Path
    recipes: Mapping[str, Recipe]
    rewards: Mapping[str, Reward]


def read_recipes(path: str | Path) -> OwnRecipes:
    """Run a Python file and return every Recipe it has as a variable, and the dict `rewards` where it has one.

    The file may also register models and other parts. Raises UserError for a file that cannot be run.
    """
    path = Path(path)
    found = vars(run_file(path))
    recipes = {value.name: value for value in found.values() if isinstance(value, Recipe)}
    rewards = found.get("rewards", {})
    if not isinstance(rewards, Mapping) or not all(callable(reward) for reward in rewards.values()):
        raise UserError(f"{path} has rewards that are no functions by name; write rewards = {{'mine': function}}")
    return OwnRecipes(path, recipes, rewards)
