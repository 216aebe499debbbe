"""Recipes: Python functions that return the whole typed configuration of a run."""

from legenda.errors import UserError, nearest
from legenda.recipes.flickr8k import flickr8k_recipes
from legenda.recipes.recipe import Recipe
from legenda.recipes.scenes import scenes_recipes


def all_recipes() -> dict[str, Recipe]:
    """Every recipe by its name."""
    return scenes_recipes() | flickr8k_recipes()


def get_recipe(name: str) -> Recipe:
    """The recipe of that name; UserError with the nearest one when there is none."""
    recipes = all_recipes()
    if name not in recipes:
        raise UserError(f"there is no recipe {name!r}; {nearest(name, recipes)}")
    return recipes[name]


__all__ = ["Recipe", "all_recipes", "get_recipe"]
