"""`legenda recipes`: the recipes, or one of them in full."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from legenda.apps.options import parse


@dataclass(frozen=True)
class Options:
    """Lists the recipes, or prints the full configuration of one as JSON."""

    name: tyro.conf.Positional[str | None] = None
    """A recipe such as scenes.ngsan."""


def run(arguments: Sequence[str]) -> None:
    """Prints to the standard output."""
    options = parse(Options, arguments, "recipes")
    from legenda.recipes import all_recipes, get_recipe

    if options.name is not None:
        print(json.dumps(dataclasses.asdict(get_recipe(options.name)), indent=2, default=str))
        return
    recipes = all_recipes()
    width = max(map(len, recipes))
    for name, recipe in recipes.items():
        print(f"{name:<{width}}  {recipe.summary}")
    print("\nlegenda recipes NAME prints one in full; legenda train NAME trains it.")
