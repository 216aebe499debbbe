"""`legenda recipes`: list the recipes, or print one in full."""

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from legenda.cli._filter import matching
from legenda.cli.options import parse


@dataclass(frozen=True)
class Options:
    """List the recipes whose name or summary holds a text, or print one as TOML, as legenda train --config reads it."""

    filter: tyro.conf.Positional[str | None] = None
    """The name of a recipe, which is printed in full, as scenes.ngsan; or a text, or a pattern such as "coco.*"."""


def run(arguments: Sequence[str]) -> None:
    """Print to the standard output."""
    options = parse(Options, arguments, "recipes")
    from legenda.recipes import all_recipes, get_recipe, recipe_to_toml

    recipes = all_recipes()
    if options.filter is not None:
        found = matching(options.filter, recipes, lambda name: recipes[name].summary)
        if options.filter in recipes or not found:
            print(recipe_to_toml(get_recipe(options.filter)), end="")
            return
        recipes = {name: recipes[name] for name in found}
    width = max(map(len, recipes), default=0)
    for name, recipe in recipes.items():
        print(f"{name:<{width}}  {recipe.summary}")
    print("\nlegenda recipes NAME prints one in full; legenda train NAME trains it.")
