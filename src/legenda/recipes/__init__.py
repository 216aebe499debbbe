"""Recipes: the configurations of runs, for the papers, their tables, and small data sets."""

from legenda.datasets.captions import ScenesData
from legenda.errors import ConfigError, did_you_mean
from legenda.recipes.aoanet import aoanet_recipes
from legenda.recipes.flickr8k import flickr8k_recipes
from legenda.recipes.grounding import grounding_recipes
from legenda.recipes.mdsan import mdsan_recipes
from legenda.recipes.ngsan import ngsan_recipes
from legenda.recipes.recipe import Recipe
from legenda.recipes.scenes import make_scenes_recipe, scenes_recipes
from legenda.recipes.translation import translation_recipes
from legenda.recipes.user_recipes import UserRecipes, read_recipes
from legenda.recipes.video import video_recipes
from legenda.recipes.vqa import vqa_recipes
from legenda.recipes.xlan import xlan_recipes
from legenda.tasks.captioning import Captioning


def all_recipes() -> dict[str, Recipe]:
    """Return every recipe by its name."""
    papers = ngsan_recipes() | aoanet_recipes() | xlan_recipes() | mdsan_recipes()
    tasks = vqa_recipes() | grounding_recipes() | translation_recipes() | video_recipes()
    return scenes_recipes() | flickr8k_recipes() | papers | tasks


def get_recipe(name: str, user: UserRecipes | None = None) -> Recipe:
    """Return the recipe of that name; raise ConfigError with the most similar name when there is none.

    user: user-defined recipes, which precede the others. The prefix `scenes.` returns the model of any captioning
    recipe with small sizes on the embedded scenes, as in scenes.ngsan.table2.bn.
    """
    recipes = all_recipes() | (dict(user.recipes) if user else {})
    if name in recipes:
        return recipes[name]
    large = recipes.get(name.removeprefix("scenes."))
    if large is not None and large.task is Captioning and not isinstance(large.data, ScenesData):
        return make_scenes_recipe(large)
    if user is not None and not user.recipes:
        raise ConfigError(f"{user.source} has no recipe; add a variable such as mine = Recipe(name=...)")
    raise ConfigError(f"there is no recipe {name!r}; {did_you_mean(name, recipes)}")


__all__ = ["Recipe", "UserRecipes", "all_recipes", "get_recipe", "read_recipes"]
