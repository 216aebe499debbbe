"""Options of `legenda train`: those of the command, and the fields of the recipe."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from legenda.cli.options import parse
from legenda.compute import ComputeOptions, Precision
from legenda.errors import ConfigError
from legenda.recipes import Recipe
from legenda.recipes.overrides import RecipeOptions, apply_schedules, continue_from, option_value, select_stages


@dataclass(frozen=True)
class TrainOptions:
    """The recipe with the changes of the command line, and the options of the command."""

    recipe: Recipe
    out: Path
    seeds: int
    settings: Mapping[str, Any]
    """Keyword arguments of `train_recipe`."""


def parse_train(recipe: Recipe, arguments: Sequence[str]) -> TrainOptions:
    """Return the options of `legenda train` for a recipe; raise ConfigError for a wrong one."""
    init_from = option_value(arguments, "--init-from")
    if init_from is not None:
        recipe = continue_from(recipe, init_from)
    recipe, arguments = apply_schedules(recipe, arguments)
    recipe_options = RecipeOptions.of(recipe, option_value(arguments, "--model.decoder.name"))
    options = dataclasses.make_dataclass(
        "Options",
        [
            ("out", Path, Path("runs") / recipe.name),
            ("init_from", str | None, None),
            ("seeds", int, 1),
            ("device", str, "auto"),
            ("precision", Precision | None, None),
            ("devices", int, 1),
            ("nodes", int, 1),
            ("strategy", Literal["ddp", "fsdp"], "ddp"),
            ("stages", Literal["all", "first"], "all"),
            ("recipe_file", Path | None, None),
            *recipe_options.fields,
        ],
        frozen=True,
        kw_only=True,
        namespace={"__doc__": f"Train {recipe.name} ({recipe.summary}).", "__module__": __name__},
    )
    markers = (tyro.conf.AvoidSubcommands,)  # --training.schedule names a class, not a subcommand
    given: Any = parse(options, arguments, f"train {recipe.name}", config=markers)
    for name in ("seeds", "devices", "nodes"):
        if getattr(given, name) < 1:
            raise ConfigError(f"--{name} must be at least 1, not {getattr(given, name)}")
    ComputeOptions(device=given.device)  # raises for a name that no machine has
    recipe = select_stages(recipe_options.apply(given), given.stages)
    names = ("init_from", "device", "precision", "devices", "nodes", "strategy")
    return TrainOptions(recipe, given.out, given.seeds, {name: getattr(given, name) for name in names})
