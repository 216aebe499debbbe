"""Recipes: the configurations of runs, for the papers, their tables, and small data sets."""

from legenda.data.captions import ScenesData
from legenda.errors import ConfigError, did_you_mean
from legenda.plugins import Registry
from legenda.recipes.library import library_recipes
from legenda.recipes.recipe import Recipe, read_recipe, recipe_to_toml

RECIPES: Registry[Recipe] = Registry("recipe", {})
"""The recipes that users registered, which precede those of the library."""


def all_recipes() -> dict[str, Recipe]:
    """Return every recipe by its name."""
    return library_recipes() | {name: RECIPES.get(name) for name in RECIPES}


def get_recipe(name: str) -> Recipe:
    """Return the recipe of that name; raise ConfigError with the most similar name when there is none.

    The prefix `scenes.` returns the model of any captioning recipe with small sizes on the embedded scenes, as in
    scenes.ngsan.table2.bn; sizes that the recipe overrides stay.
    """
    recipes = all_recipes()
    if name in recipes:
        return recipes[name]
    large = recipes.get(name.removeprefix("scenes."))
    if large is not None and large.task == "captioning" and not isinstance(large.data, ScenesData):
        small = recipes[f"scenes.{large.model}"]
        overrides = {**small.model_overrides, **large.model_overrides}
        return small.replace(name=name, summary=f"on scenes, small: {large.summary}", model_overrides=overrides)
    raise ConfigError(f"there is no recipe {name!r}; {did_you_mean(name, recipes)}")


__all__ = ["RECIPES", "Recipe", "all_recipes", "get_recipe", "read_recipe", "recipe_to_toml"]
