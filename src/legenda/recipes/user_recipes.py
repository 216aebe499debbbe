"""User-defined recipes in a Python file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from legenda.errors import ConfigError
from legenda.plugins import run_file
from legenda.recipes.recipe import Recipe

if TYPE_CHECKING:
    from legenda.tasks.rewards import Reward


@dataclass(frozen=True, eq=False)
class UserRecipes:
    """The recipes and the rewards of a file, by name."""

    source: Path
    recipes: Mapping[str, Recipe]
    rewards: Mapping[str, Reward]


def read_recipes(path: str | Path) -> UserRecipes:
    """Run a Python file and return every Recipe it has as a variable, and the dict `rewards` where it has one.

    The file may also register models and other parts. Raise LegendaError for a file that cannot be run.
    """
    path = Path(path)
    variables = vars(run_file(path))
    recipes = {value.name: value for value in variables.values() if isinstance(value, Recipe)}
    rewards = variables.get("rewards", {})
    if not isinstance(rewards, Mapping) or not all(callable(reward) for reward in rewards.values()):
        raise ConfigError(f"the rewards of {path} must be functions by name; write rewards = {{'mine': function}}")
    return UserRecipes(path, recipes, rewards)
