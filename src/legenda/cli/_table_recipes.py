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
    for value in vars(recipe.data).values():
        if isinstance(value, Path) and not value.exists():
            raise ConfigError(
                f"{value} does not exist; name the data with --data.annotations and --data.features, or train on the "
                "embedded scenes with --scenes"
            )
    return recipe
