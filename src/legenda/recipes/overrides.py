"""Change the model, the data and the training stages of a recipe by options, such as --training.epochs 3."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from legenda.config import merge
from legenda.errors import CheckpointError, ConfigError, did_you_mean
from legenda.models import describe_model
from legenda.models.location import find_model
from legenda.plugin_records import check_plugins
from legenda.recipes.model_options import ModelOptions
from legenda.recipes.recipe import Recipe
from legenda.run_config import read_config
from legenda.run_files import CONFIG
from legenda.training.config import stage_name
from legenda.training.schedules import SCHEDULES


def stage_names(recipe: Recipe) -> tuple[str, ...]:
    """Return the names of a recipe's stages among its options: training, fine_tuning, stage_3, ..."""
    return tuple(map(stage_name, range(len(recipe.stages))))


@dataclass(frozen=True)
class RecipeOptions:
    """The options of a recipe.

    fields: name, type and default of the fields of a dataclass with these options; each is a dataclass itself.
    """

    recipe: Recipe
    model: ModelOptions
    fields: tuple[tuple[str, Any, Any], ...]

    @classmethod
    def of(cls, recipe: Recipe, decoder: str | None) -> RecipeOptions:
        """Return the options of a recipe. decoder: the name of another model whose decoder the model gets, if any."""
        model = ModelOptions.of(recipe, decoder)
        parts = {"model": model.defaults, "data": recipe.data}
        parts |= dict(zip(stage_names(recipe), recipe.stages, strict=True))
        return cls(recipe, model, tuple((name, type(part), part) for name, part in parts.items()))

    def apply(self, options: Any) -> Recipe:
        """Return the recipe with the values of `options`, an instance with the attributes `fields`."""
        return dataclasses.replace(
            self.recipe,
            model_overrides=self.model.changes(options.model),
            data=options.data,
            stages=tuple(getattr(options, name) for name in stage_names(self.recipe)),
        )


def option_value(arguments: Sequence[str], option: str) -> str | None:
    """Return the value of an option in a command line, which decides which other options exist; None if absent."""
    for index, argument in enumerate(arguments):
        if argument == option and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith(f"{option}="):
            return argument.removeprefix(f"{option}=")
    return None


def apply_schedules(recipe: Recipe, arguments: Sequence[str]) -> tuple[Recipe, list[str]]:
    """Return the recipe with the schedules named in a command line, and the rest of the command line.

    Raise ConfigError for an unknown schedule.
    """
    rest, stages = list(arguments), list(recipe.stages)
    for index, stage in enumerate(stage_names(recipe)):
        option = f"--{stage.replace('_', '-')}.schedule"
        name = option_value(rest, option)
        if name is None:
            continue
        position = next(position for position, text in enumerate(rest) if text.split("=")[0] == option)
        del rest[position : position + (1 if "=" in rest[position] else 2)]
        stages[index] = dataclasses.replace(stages[index], schedule=SCHEDULES.get(name.replace("-", "_"))())
    return dataclasses.replace(recipe, stages=tuple(stages)), rest


def override(recipe: Recipe, changes: Mapping[str, Mapping[str, Any]]) -> Recipe:
    """Return the recipe with fields changed: those of "model", "data", "training" and the further stages.

    As on the command line, a decoder and a schedule may be given by name. Raise ConfigError for an unknown field or a
    value of the wrong type.
    """
    model = dict(changes.get("model", {}))
    decoder = model.get("decoder")
    if isinstance(decoder, str):
        model["decoder"] = decoder = {"name": decoder}
    options = RecipeOptions.of(recipe, decoder.get("name") if isinstance(decoder, Mapping) else None)
    parts = {name: default for name, _, default in options.fields}
    for name, given in changes.items():
        if name not in parts:
            raise ConfigError(f"there is no part {name!r} of a recipe; {did_you_mean(name, parts)}")
        if not isinstance(given, Mapping):
            raise ConfigError(f"{name} takes fields by name, as in {name}={{...}}, not {given!r}")
        fields = model if name == "model" else dict(given)
        if isinstance(fields.get("schedule"), str):
            fields["schedule"] = SCHEDULES.get(fields["schedule"])()
        parts[name] = merge(parts[name], fields, name)
    return options.apply(SimpleNamespace(**parts))


def select_stages(recipe: Recipe, stages: Literal["all", "first"]) -> Recipe:
    """Return the recipe, or its first stage of two; raise ConfigError where it has only one."""
    if stages == "first" and len(recipe.stages) == 1:
        raise ConfigError("--stages first needs a recipe of two stages; this one has one")
    return dataclasses.replace(recipe, stages=recipe.stages[:1]) if stages == "first" else recipe


def continue_from(recipe: Recipe, run: str | Path, stages: str | None = None) -> Recipe:
    """Return the recipe for the model of a trained run, which replaces the first of several stages.

    run: a name that `find_model` takes. stages: "first" keeps the first stage, which then starts from the run. Raise
    CheckpointError where its folder holds no run, or where the model needs a plugin that is not loaded.
    """
    folder = find_model(run)
    config = read_config(folder, "--init-from takes the folder of a trained run")
    check_plugins(config, folder / CONFIG, "model")
    try:
        name, options = config["model"]["name"], dict(config["model"]["options"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f'{folder / CONFIG} has no usable "model" part; --init-from takes the folder of a trained run'
        ) from error
    derived = describe_model(name).config.derived
    overrides = {key: value for key, value in options.items() if key not in derived}
    left = recipe.stages if stages == "first" else recipe.stages[1:] or recipe.stages
    return dataclasses.replace(recipe, model=name, model_overrides=overrides, stages=left)


def with_seed(recipe: Recipe, seed: int) -> Recipe:
    """Return the recipe with the seed of all stages changed."""
    return dataclasses.replace(recipe, stages=tuple(dataclasses.replace(stage, seed=seed) for stage in recipe.stages))
