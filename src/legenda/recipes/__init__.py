"""Recipes: Python functions that return the whole typed configuration of a run."""

from legenda.datasets.captions import ScenesData
from legenda.errors import UserError, nearest
from legenda.recipes.aoanet import aoanet_recipes
from legenda.recipes.flickr8k import flickr8k_recipes
from legenda.recipes.grounding import grounding_recipes
from legenda.recipes.mdsan import mdsan_recipes
from legenda.recipes.ngsan import ngsan_recipes
from legenda.recipes.recipe import Recipe
from legenda.recipes.scenes import on_scenes, scenes_recipes
from legenda.recipes.translation import translation_recipes
from legenda.recipes.user_recipes import OwnRecipes, read_recipes
from legenda.recipes.video import video_recipes
from legenda.recipes.vqa import vqa_recipes
from legenda.recipes.xlan import xlan_recipes
from legenda.tasks.captioning import Captioning


def all_recipes() -> dict[str, Recipe]:
    """Every recipe by its name."""
    papers = ngsan_recipes() | aoanet_recipes() | xlan_recipes() | mdsan_recipes()
    tasks = vqa_recipes() | grounding_recipes() | translation_recipes() | video_recipes()
    return scenes_recipes() | flickr8k_recipes() | papers | tasks


def get_recipe(name: str, own: OwnRecipes | None = None) -> Recipe:
    """The recipe of that name, one's own before the others; UserError with the nearest one when there is none.

    `scenes.` before the name of a recipe of captioning gives its model on the embedded scenes, as in
    scenes.ngsan.table2.bn.
    """
    recipes = all_recipes() | (dict(own.recipes) if own else {})
    if name in recipes:
        return recipes[name]
    large = recipes.get(name.removeprefix("scenes."))
    if large is not None and large.task is Captioning and not isinstance(large.data, ScenesData):
        return on_scenes(large)
    if own is not None and not own.recipes:
        raise UserError(f"{own.source} has no recipe; give it a variable such as mine = Recipe(name=...)")
    raise UserError(f"there is no recipe {name!r}; {nearest(name, recipes)}")


__all__ = ["OwnRecipes", "Recipe", "all_recipes", "get_recipe", "read_recipes"]
