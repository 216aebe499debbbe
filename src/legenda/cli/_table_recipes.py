"""The recipes of a table's rows with the options of the command line."""

from collections.abc import Sequence
from pathlib import Path

from legenda.cli._train_options import parse_train
from legenda.errors import ConfigError, LegendaError
from legenda.recipes import Recipe, get_recipe


def check_recipe(name: str, key: str, row_options: Sequence[str]) -> Recipe:
    """Return the recipe of a row after checking its options and its data."""
    try:
        recipe = parse_train(get_recipe(name), row_options).recipe
    except LegendaError as error:
        raise ConfigError(f"row {key}: {error}") from error
    paths = {field: value for field, value in vars(recipe.data).items() if isinstance(value, Path)}
    for value in paths.values():
        if not value.exists():
            options = " and ".join(f"--data.{field.replace('_', '-')}" for field in paths)
            scenes = ", or train on the embedded scenes with --scenes" if recipe.task == "captioning" else ""
            raise ConfigError(f"{value} does not exist; name the data with {options}{scenes}")
    return recipe
