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

    recipes: Mapping[str, Recipe]
    rewards: Mapping[str, Reward]


def read_recipes(path: str | Path) -> OwnRecipes:
    """Runs a Python file and takes every Recipe it has as a variable, and the dict `rewards` where it has one.

    Raises UserError for a file that cannot be run, or that has no recipe.
    """
    path = Path(path)
    found = vars(run_file(path))
    recipes = {value.name: value for value in found.values() if isinstance(value, Recipe)}
    if not recipes:
        raise UserError(f"{path} has no recipe; give it a variable such as mine = Recipe(name=...)")
    rewards = found.get("rewards", {})
    if not isinstance(rewards, Mapping) or not all(callable(reward) for reward in rewards.values()):
        raise UserError(f"{path} has rewards that are no functions by name; write rewards = {{'mine': function}}")
    return OwnRecipes(recipes, rewards)
