"""Recipes: the configurations of runs, for the papers, their tables, and small data sets."""

from dataclasses import replace

from legenda.datasets.captions import ScenesData
from legenda.errors import ConfigError, did_you_mean
from legenda.recipes.library import all_recipes
from legenda.recipes.recipe import Recipe
from legenda.recipes.recipe_json import read_recipe, recipe_to_json
from legenda.recipes.user_recipes import UserRecipes, read_recipes


def get_recipe(name: str, user: UserRecipes | None = None) -> Recipe:
    """Return the recipe of that name; raise ConfigError with the most similar name when there is none.

    user: user-defined recipes, which precede the others. The prefix `scenes.` returns the model of any captioning
    recipe with small sizes on the embedded scenes, as in scenes.ngsan.table2.bn; sizes that the recipe overrides stay.
    """
    recipes = all_recipes() | (dict(user.recipes) if user else {})
    if name in recipes:
        return recipes[name]
    large = recipes.get(name.removeprefix("scenes."))
    if large is not None and large.task == "captioning" and not isinstance(large.data, ScenesData):
        small = recipes[f"scenes.{large.model}"]
        overrides = {**small.model_overrides, **large.model_overrides}
        return replace(small, name=name, summary=f"on scenes, small: {large.summary}", model_overrides=overrides)
    if user is not None and not user.recipes:
        raise ConfigError(f"{user.source} has no recipe; add a variable such as mine = Recipe(name=...)")
    raise ConfigError(f"there is no recipe {name!r}; {did_you_mean(name, recipes)}")


__all__ = ["Recipe", "UserRecipes", "all_recipes", "get_recipe", "read_recipe", "read_recipes", "recipe_to_json"]
