"""`legenda recipes`: list the recipes, or print one in full."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from legenda.cli.options import parse


@dataclass(frozen=True)
class Options:
    """List the recipes, or print the full configuration of one as JSON."""

    name: tyro.conf.Positional[str | None] = None
    """A recipe such as scenes.ngsan."""
    recipe_file: Path | None = None
    """A Python file with user-defined recipes."""


def run(arguments: Sequence[str]) -> None:
    """Print to the standard output."""
    options = parse(Options, arguments, "recipes")
    from legenda.recipes import all_recipes, get_recipe, read_recipes

    user_recipes = None if options.recipe_file is None else read_recipes(options.recipe_file)
    if options.name is not None:
        print(json.dumps(dataclasses.asdict(get_recipe(options.name, user_recipes)), indent=2, default=str))
        return
    recipes = all_recipes() if user_recipes is None else user_recipes.recipes
    width = max(map(len, recipes), default=0)
    for name, recipe in recipes.items():
        print(f"{name:<{width}}  {recipe.summary}")
    print("\nlegenda recipes NAME prints one in full; legenda train NAME trains it.")
