"""`legenda recipes`: list the recipes by their purpose, or print one in full."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

import tyro

from legenda.config import Config
from legenda.papers import RECIPES, all_recipes, all_tables, get_recipe
from legenda.recipes import Recipe, recipe_to_toml

START, MODELS, TABLES, OTHERS, OWN = (
    "Start here: photographs, and small models",
    "The papers' models on COCO",
    "Rows of the papers' tables (legenda recipes ngsan.table2 lists them, legenda table ngsan.table2 trains them)",
    "Other tasks: videos, questions, grounding, translation",
    "Yours",
)


class RecipesOptions(Config):
    """List the recipes whose name or summary holds a text, or print one as TOML, as legenda train --config reads it."""

    filter: tyro.conf.Positional[str | None] = None
    """The name of a recipe, which is printed in full, as scenes.ngsan; or a text, or a pattern such as "coco.*"."""


def run(options: RecipesOptions) -> None:
    """Print to the standard output."""
    recipes = all_recipes()
    if options.filter is None:
        _print_groups(recipes)
    else:
        names = matching(options.filter, {name: recipe.summary for name, recipe in recipes.items()})
        if options.filter in recipes or not names:
            print(recipe_to_toml(get_recipe(options.filter)), end="")
            return
        _print_lines({name: recipes[name].summary for name in names})
        print()
    print("legenda recipes NAME prints one in full; legenda train NAME trains it.")


def _print_groups(recipes: Mapping[str, Recipe]) -> None:
    """Print a line for each recipe, and one for the rows of each table, under the headings of their purposes."""
    groups: dict[str, dict[str, str]] = {title: {} for title in (START, MODELS, TABLES, OTHERS, OWN)}
    tables = all_tables()
    for name in sorted(recipes, key=lambda name: name.startswith("flickr8k.")):
        recipe = recipes[name]
        table = tables.get(name.rpartition(".")[0])
        if name in RECIPES:
            groups[OWN][name] = recipe.summary
        elif table is not None:
            groups[TABLES][f"{table.name}.*"] = f"{table.title} ({table.source})"
        elif name.startswith("coco."):
            groups[MODELS][name] = recipe.summary
        elif name.partition(".")[0] in ("photo", "scenes", "flickr8k"):
            groups[START][name] = recipe.summary
        else:
            groups[OTHERS][name] = recipe.summary
    width = max(len(name) for group in groups.values() for name in group)
    for title, group in groups.items():
        if group:
            print(title)
            _print_lines(group, width)
            print()


def _print_lines(summaries: Mapping[str, str], width: int = 0) -> None:
    width = width or max(map(len, summaries), default=0)
    for name, summary in summaries.items():
        print(f"{name:<{width}}  {summary}")


def matching(text: str, descriptions: Mapping[str, str]) -> list[str]:
    """Return the names that match the pattern `text`, or that hold it in the name or the description, in any case."""
    wanted = text.lower()
    return [
        name
        for name, about in descriptions.items()
        if fnmatchcase(name.lower(), wanted) or wanted in f"{name}\n{about}".lower()
    ]
