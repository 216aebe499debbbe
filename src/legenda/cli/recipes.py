"""`legenda recipes`: the recipes, or one of them in full."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from legenda.cli.options import parse


@dataclass(frozen=True)
class Options:
    """Lists the recipes, or prints the full configuration of one as JSON."""

    name: tyro.conf.Positional[str | None] = None
    """A recipe such as scenes.ngsan."""
    recipe_file: Path | None = None
    """A Python file with recipes of your own."""


def run(arguments: Sequence[str]) -> None:
    """Prints to the standard output."""
    options = parse(Options, arguments, "recipes")
    from legenda.recipes import all_recipes, get_recipe, read_recipes

    own = None if options.recipe_file is None else read_recipes(options.recipe_file)
    if options.name is not None:
        print(json.dumps(dataclasses.asdict(get_recipe(options.name, own)), indent=2, default=_named))
        return
    recipes = all_recipes() if own is None else own.recipes
    width = max(map(len, recipes), default=0)
    for name, recipe in recipes.items():
        print(f"{name:<{width}}  {recipe.summary}")
    print("\nlegenda recipes NAME prints one in full; legenda train NAME trains it.")


def _named(value: object) -> str:
    """What JSON has no way to say: a task by its name, a path as it is."""
    return str(getattr(value, "name", value) if isinstance(value, type) else value)
