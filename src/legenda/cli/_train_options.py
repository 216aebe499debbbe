"""Parse the options of `legenda train`: those of the command, and the fields of the recipe."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from legenda.cli._train_command import CommandOptions, TrainOptions
from legenda.cli._train_help import hide_options
from legenda.cli.options import parse
from legenda.compute import ComputeOptions
from legenda.recipes import Recipe
from legenda.recipes.overrides import RecipeOptions, apply_schedules, continue_from, option_value, select_stages


def parse_train(recipe: Recipe, arguments: Sequence[str]) -> TrainOptions:
    """Return the options of `legenda train` for a recipe; raise ConfigError for a wrong one."""
    init_from = option_value(arguments, "--init-from")
    if init_from is not None:
        recipe = continue_from(recipe, init_from, option_value(arguments, "--stages"))
    recipe, arguments = apply_schedules(recipe, arguments)
    recipe_options = RecipeOptions.of(recipe, option_value(arguments, "--model.decoder.name"))
    command, fields, about = CommandOptions(out=Path("runs") / recipe.name), recipe_options.fields, ""
    if "--help-all" in arguments:
        arguments = ["--help"]
    elif "--help" in arguments or "-h" in arguments:
        command = hide_options("command", command)[2]
        fields = tuple(hide_options(name, part) for name, _, part in fields)
        about = "\n\nThese options matter most; --help-all lists all of them."
    options = dataclasses.make_dataclass(
        "Options",
        [("out", Path, command.out), *fields],
        bases=(type(command),),
        frozen=True,
        kw_only=True,
        namespace={"__doc__": f"Train {recipe.name} ({recipe.summary}).{about}", "__module__": __name__},
    )
    markers = (tyro.conf.AvoidSubcommands,)  # --training.schedule names a class, not a subcommand
    given: Any = parse(options, arguments, f"train {recipe.name}", config=markers, help_option="--help-all")
    ComputeOptions(device=given.device)  # raises for a name that no machine has
    recipe = select_stages(recipe_options.apply(given), given.stages)
    names = ("init_from", "device", "precision", "devices", "nodes", "strategy")
    return TrainOptions(recipe, given.out, given.seeds, {name: getattr(given, name) for name in names})
