"""`legenda recipes`: list the recipes by their purpose, or print one in full."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

import tyro

from legenda.config import Config
from legenda.papers import RECIPES, all_tables, get_recipe, recipe_summaries

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
    summaries = recipe_summaries()
    if options.filter is None:
        _print_groups(summaries)
    else:
        names = matching(options.filter, summaries)
        if options.filter in summaries or not names:
            recipe = get_recipe(options.filter)
            from legenda.recipes import recipe_to_toml  # late: the fields of models are beside their PyTorch modules

            print(recipe_to_toml(recipe), end="")
            return
        _print_lines({name: summaries[name] for name in names})
        print()
    print("legenda recipes NAME prints one in full; legenda train NAME trains it.")


def _print_groups(summaries: Mapping[str, str]) -> None:
    """Print a line for each recipe, and one for the rows of each table, under the headings of their purposes."""
    groups: dict[str, dict[str, str]] = {title: {} for title in (START, MODELS, TABLES, OTHERS, OWN)}
    tables = all_tables()
    for name, summary in sorted(summaries.items(), key=lambda recipe: recipe[0].startswith("flickr8k.")):
        table = tables.get(name.rpartition(".")[0])
        if name in RECIPES:
            groups[OWN][name] = summary
        elif table is not None:
            groups[TABLES][f"{table.name}.*"] = f"{table.title} ({table.source})"
        elif name.startswith("coco."):
            groups[MODELS][name] = summary
        elif name.partition(".")[0] in ("photo", "scenes", "flickr8k"):
            groups[START][name] = summary
        else:
            groups[OTHERS][name] = summary
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
