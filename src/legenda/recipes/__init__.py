"""Recipes: Python functions that return the whole typed configuration of a run."""

from legenda.errors import UserError, nearest
from legenda.recipes.aoanet import aoanet_recipes
from legenda.recipes.flickr8k import flickr8k_recipes
from legenda.recipes.mdsan import mdsan_recipes
from legenda.recipes.ngsan import ngsan_recipes
from legenda.recipes.own import OwnRecipes, read_recipes
from legenda.recipes.recipe import Recipe
from legenda.recipes.scenes import scenes_recipes
from legenda.recipes.xlan import xlan_recipes


def all_recipes() -> dict[str, Recipe]:
    """Every recipe by its name."""
    papers = ngsan_recipes() | aoanet_recipes() | xlan_recipes() | mdsan_recipes()
    return scenes_recipes() | flickr8k_recipes() | papers


def get_recipe(name: str, own: OwnRecipes | None = None) -> Recipe:
    """The recipe of that name, one's own before the others; UserError with the nearest one when there is none."""
    recipes = all_recipes() | (dict(own.recipes) if own else {})
    if name not in recipes:
        raise UserError(f"there is no recipe {name!r}; {nearest(name, recipes)}")
    return recipes[name]


__all__ = ["OwnRecipes", "Recipe", "all_recipes", "get_recipe", "read_recipes"]
