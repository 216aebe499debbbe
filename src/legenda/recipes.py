"""The configuration of a run: its dictionary form, changes by key=value, and TOML.

A recipe in TOML has a table for its model, its data and each stage of its training:

    task = "captioning"
    [model]
    name = "ngsan"
    num_layers = 3
    [data]
    kind = "scenes"
    [training]
    epochs = 23
    [fine_tuning]
    objective = "self_critical"
"""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SerializeAsAny, SkipValidation, model_validator

from legenda.config import Config, descriptions, log_dropped, merge, to_json
from legenda.data.registry import DATASETS, Data, data_settings, find_path
from legenda.errors import ConfigError, did_you_mean
from legenda.hub import find_model
from legenda.io import read_text
from legenda.models import describe_model
from legenda.models.registry import Entry, configure_sizeless, describe_decoder
from legenda.run_folder import CONFIG, RunConfig, name_stages, read_config, split_model, stage_name, stages_of
from legenda.training.config import TrainingConfig

__all__ = ["Data", "Recipe", "read_recipe", "recipe_from_dict", "recipe_to_toml"]

_LOG = logging.getLogger(__name__)
_PLAIN = ("name", "summary", "task", "init_from")
"""Parts of a recipe that are no tables."""
_OF_RUNS = (
    "generation_config",
    "format_version",
    "vocabulary",
    "extractor",
    "environment",
    "data_digest",
    "consensus",
    "trained_in",
)
"""Parts of config.json that are no part of a recipe."""


class Recipe(Config):
    """The configuration of a run: a model, its data, its task and its training stages."""

    name: str
    """The name on the command line."""
    summary: str = ""
    """One line for lists."""
    task: str = "captioning"
    """The name of the registered task that is created from the opened data."""
    model: str
    """The name of the model."""
    model_overrides: Mapping[str, object] = Field(default_factory=dict)
    """Fields of the model's configuration that differ from those of the named model; the size of the vocabulary and the
    width of the features follow from the data."""
    data: Annotated[SerializeAsAny[SkipValidation[Data]], DATASETS.of_kind()]
    """The settings of the data."""
    init_from: Path | None = None
    """The trained run, or packaged model, whose weights and vocabulary the first stage starts with."""
    stages: tuple[TrainingConfig, ...]
    """Training stages, at least one; each later stage starts from the best model of the stage before."""

    @model_validator(mode="after")
    def _check_recipe(self) -> Self:
        if not self.stages:
            raise ConfigError(f"the recipe {self.name} has no stage; give it [training], or stages=(TrainingConfig(),)")
        if self.name in ("", "..") or Path(self.name).name != self.name or not self.name.isprintable():
            raise ConfigError(f"name={self.name!r} must be that of a file, since runs are written to runs/NAME")
        return self

    def with_seed(self, seed: int) -> Recipe:
        """Return the recipe with the seed of all stages changed."""
        return self.replace(stages=tuple(stage.replace(seed=seed) for stage in self.stages))

    def select_stages(self, stages: Literal["all", "first"]) -> Recipe:
        """Return the recipe, or its first stage of two; raise ConfigError where it has only one."""
        if stages == "first" and len(self.stages) == 1:
            raise ConfigError("--stages first needs a recipe of two stages; this one has one")
        return self.replace(stages=self.stages[:1]) if stages == "first" else self

    def to_dict(self) -> dict[str, object]:
        """Return the recipe as dictionaries, lists and scalars, in the form of its TOML."""
        model = {"name": self.model, **to_json(self.model_overrides)}
        plain = {name: to_json(value) for name in _PLAIN if (value := getattr(self, name)) is not None}
        return {**plain, "model": model, "data": to_json(self.data), **to_json(name_stages(self.stages))}

    def override(self, changes: Mapping[str, object]) -> Recipe:
        """Return the recipe with fields changed, as in {"model": {"dim": 64}, "training": {"epochs": 3}}.

        Raise ConfigError for an unknown field, which names the nearest one, and for a wrong value.
        """
        parts = name_stages(self.stages)
        known = (*_PLAIN, "model", "data", *parts)
        values: dict[str, object] = {}
        for name, change in changes.items():
            if name not in known:
                raise ConfigError(f"a recipe has no part {name!r}; {self._suggest(name)}")
            if name in _PLAIN:
                values[name] = Path(change) if name == "init_from" and isinstance(change, str) else change
                continue
            if isinstance(change, str) and name in ("model", "data"):
                change = {"name" if name == "model" else "kind": change}
            if not isinstance(change, Mapping):
                raise ConfigError(f"{name} takes fields, as in {name}.FIELD=VALUE, not {change!r}")
            if name == "model":
                values |= self._override_model(change)
            elif name == "data":
                values["data"] = self._override_data(change)
            else:
                schedule = type(parts[name].schedule).model_fields.keys()
                for field in change.keys() & schedule - TrainingConfig.model_fields.keys():
                    raise ConfigError(f"{name} has no option {field!r}; did you mean schedule.{field}?")
                parts[name] = merge(parts[name], change, name)
        recipe = self.replace(**values, stages=tuple(parts.values()))
        for stage in recipe.stages:
            if stage.dropout:
                configure_sizeless(recipe.model, {**recipe.model_overrides, **stage.dropout})  # raises
        return recipe

    def _override_data(self, change: Mapping[str, object]) -> Data:
        if change.get("kind", self.data.kind) == self.data.kind:
            return merge(self.data, change, "data")
        data = DATASETS.configure(change, "data")
        log_dropped("data", self.data, data, change)
        return data

    def _override_model(self, change: Mapping[str, object]) -> dict[str, object]:
        change = dict(change)
        name, old = str(change.pop("name", self.model)), self.model_overrides
        entry, dropped = describe_model(name), []
        own, attention = old.get("attention_options"), old.get("attention")
        if own and change.get("attention", attention) != attention:  # another one has others
            old = {field: value for field, value in old.items() if field != "attention_options"}
            dropped.append(f"model.attention_options={json.dumps(to_json(own))}")
        elif isinstance(own, Mapping) and isinstance(other := change.get("attention_options"), Mapping):
            change["attention_options"] = {**own, **other}
        overrides = {**old, **change}
        if name != self.model:
            overrides, lost = _rename("model", entry, old, change)
            dropped += lost
        decoder, before = _with_name(overrides.get("decoder")), _with_name(old.get("decoder"))
        if decoder is not None and before is not None and "decoder" in change:
            other = str(decoder.get("name", before["name"]))
            if other == before["name"]:
                decoder = {**before, **decoder}
            else:
                del before["name"]
                decoder, lost = _rename("model.decoder", describe_decoder(other), before, decoder)
                dropped += lost
        if decoder is not None:
            overrides["decoder"] = decoder
        derived = [field for field in (*entry.config.derived, "backbone") if field in change]
        if derived:
            raise ConfigError(f"model.{derived[0]} follows from the data; leave it out")
        configure_sizeless(name, overrides)  # raises
        if dropped:
            _LOG.warning("the model is %s now, without the %s", name, ", ".join(dropped))
        return {"model": name, "model_overrides": overrides}

    def _suggest(self, name: str) -> str:
        """Return the end of a sentence that names the parts, or the part with a field of that name."""
        if re.fullmatch(r"fine_?tun\w*|(stage|training)_?\d+", name):
            if self.init_from is not None:
                return "the run of init_from takes the place of the first of two stages, so the other one is training"
            return f"its stages are {', '.join(stage_names(self))}"
        parts = [("model", describe_model(self.model).config), ("data", type(self.data)), ("training", TrainingConfig)]
        owners = [f"{part}.{name}" for part, kind in parts if name in kind.model_fields]
        if not owners and name in type(self.stages[0].schedule).model_fields:
            owners = [f"training.schedule.{name}"]
        if owners:
            return f"did you mean {owners[0]}?"
        return did_you_mean(name, ("model", "data", *stage_names(self)))


def _with_name(decoder: object) -> dict[str, object] | None:
    """Return the options of a decoder, which may be given as its name; None for no decoder of another model."""
    return {"name": decoder} if isinstance(decoder, str) else dict(decoder) if isinstance(decoder, Mapping) else None


def _rename(
    part: str, entry: Entry, old: Mapping[str, object], change: Mapping[str, object]
) -> tuple[dict[str, object], list[str]]:
    """Return the options of a model that takes the place of another, and those that are dropped, as text.

    It keeps the fields that it has too, unless its name fixes them, as `ngsan` fixes norm and geometry.
    """
    kept = {field: old[field] for field in old if field in entry.config.model_fields and field not in entry.settings}
    dropped = [field for field in old if field not in kept and field not in change]
    dropped = [field for field in dropped if old[field] != entry.settings.get(field)]
    return {**kept, **change}, [f"{part}.{field}={json.dumps(to_json(old[field]))}" for field in dropped]


def stage_names(recipe: Recipe) -> tuple[str, ...]:
    """Return the names of a recipe's stages: training, fine_tuning, stage_3, ..."""
    return tuple(name_stages(recipe.stages))


def parse_changes(assignments: Iterable[str]) -> dict[str, object]:
    """Return key=value assignments, such as training.epochs=3, as nested dictionaries.

    Values are TOML; what is no TOML is a string, and between brackets a list of strings. Raise ConfigError for an
    assignment without key or value.
    """
    changes: dict[str, object] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not all(key.split(".")):
            raise ConfigError(f"{assignment!r} is no change of a recipe; write KEY=VALUE, as in training.epochs=3")
        *parts, last = key.split(".")
        change = {last: _parse_value(text)}
        for name in reversed(parts):
            change = {name: change}
        changes = _join(changes, change)
    return changes


def _join(first: Mapping[str, object], second: Mapping[str, object]) -> dict[str, object]:
    """Return both tables of fields, the second before the first; a name joins the fields of what it names.

    So model=ngsan and model.num_layers=1 mean the same in any order.
    """
    joined = dict(first)
    for field, value in second.items():
        before = joined.get(field, value)
        if field in joined and (isinstance(before, Mapping) or isinstance(value, Mapping)):
            key = "name" if field in ("model", "decoder") else "kind"
            value = _join(*(part if isinstance(part, Mapping) else {key: part} for part in (before, value)))
        joined[field] = value
    return joined


def changes_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command with all changes of fields, such as training.epochs=3, behind the first.

    What follows an option, as in `--out lr=3`, is no change unless there is a dot in the name.
    """
    changes = [
        position
        for position, (before, argument) in enumerate(zip(["", *arguments], arguments, strict=False))
        if re.match(r"[a-z_]\w*" + (r"(\.\w+)+=" if before.startswith("-") else r"(\.\w+)*="), argument)
    ]
    rest = [argument for position, argument in enumerate(arguments) if position not in changes]
    first = rest[:1] if rest and not rest[0].startswith("-") else []
    return [*first, *(arguments[position] for position in changes), *rest[len(first) :]]


def _parse_value(text: str) -> object:
    try:
        table = tomllib.loads(f"value = {text}")
        return table["value"] if len(table) == 1 else text  # a further line may be an assignment
    except tomllib.TOMLDecodeError:
        if text.startswith("[") and text.endswith("]"):
            return [_parse_value(part.strip()) for part in text[1:-1].split(",") if part.strip()]
        return None if text in ("null", "None") else text


def read_recipe(path: Path) -> Recipe:
    """Return the recipe of a TOML file, or of the config.json of a run, whose other parts are left out.

    Raise LegendaError, naming the file, where it holds none.
    """
    try:
        if path.name == CONFIG:
            return _of_run(path.parent)
        return recipe_from_dict(tomllib.loads(read_text(path)))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path} is no TOML ({error}); give a file as legenda recipes NAME prints it, or the config.json of a run"
        ) from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _of_run(folder: Path) -> Recipe:
    config = read_config(folder, "--config takes a recipe in TOML, or the config.json of a run")
    name, overrides = _model_of(config, folder)
    changed = {"model": {"name": name, **overrides}, "data": to_json(data_settings(config, folder))}
    if "init_from" in config:
        found = find_path(Path(config["init_from"]), config, folder)
        changed["init_from"] = str(found) if found.exists() else config["init_from"]  # "photo", or a name of the hub
    return recipe_from_dict({part: changed.get(part, value) for part, value in config.items() if part not in _OF_RUNS})


def _model_of(config: RunConfig, folder: Path) -> tuple[str, dict[str, object]]:
    """Return the name of a run's model, and its options but those that follow from the data."""
    name, options = split_model(config, folder)
    derived = (*describe_model(name).config.derived, "backbone")
    return name, {key: value for key, value in options.items() if key not in derived}


def recipe_from_dict(content: Mapping[str, object]) -> Recipe:
    """Return the recipe of a dictionary in the form of `Recipe.to_dict`."""
    content = dict(content)
    tables = stages_of(content)
    stages = tuple(merge(TrainingConfig, _table(table, name), name) for name, table in tables.items())
    model = _table(content.pop("model", None), "model")
    if not isinstance(model.get("name"), str):
        raise ConfigError('the recipe names no model; write [model] and name = "ngsan", for instance')
    data = _table(content.pop("data", None), "data")
    unknown = sorted(content.keys() - {*_PLAIN, *tables})
    if unknown:
        known = (*_PLAIN, "model", "data", *tables, stage_name(len(stages)))
        raise ConfigError(f"a recipe has no part {unknown[0]!r}; {did_you_mean(unknown[0], known)}")
    plain = {name: content[name] for name in _PLAIN if name in content}
    recipe = Recipe(name="mine", model=model["name"], data=DATASETS.configure(data, "data"), stages=stages)
    return recipe.override({**plain, "model": model})


def _table(value: object, name: str) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"the recipe has no table [{name}]; give a file as legenda recipes NAME prints it")
    return dict(value)


def recipe_to_toml(recipe: Recipe) -> str:
    """Return the recipe as TOML, with the description of each field as its comment.

    TOML has no None: such fields are comments, and left out of mappings such as the options of a decoder.
    """
    content = recipe.to_dict()
    model = configure_sizeless(recipe.model, recipe.model_overrides)
    lines = [f"{name} = {_toml(content[name])}" for name in _PLAIN if name in content]
    derived = ("name", "backbone", *model.derived)
    lines += ["", "[model]", f'name = "{recipe.model}"', *_fields(model, "model", skip=derived)]
    lines += ["", "[data]", *_fields(recipe.data, "data")]
    for name, stage in name_stages(recipe.stages).items():
        lines += ["", f"[{name}]", *_fields(stage, name)]
    return "\n".join(lines) + "\n"


def _fields(config: Config, table: str, skip: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of a table, and of the tables in it."""
    tables: list[str] = []
    texts = descriptions(type(config))
    for name in type(config).model_fields:
        value = getattr(config, name)
        if name in skip:
            continue
        about = [f"# {' '.join(texts[name].split())}"] if name in texts else []
        if isinstance(value, Config):
            tables += ["", *about, f"[{table}.{name}]", *_fields(value, f"{table}.{name}")]
        else:
            yield from (*about, f"# {name} =" if value is None else f"{name} = {_toml(to_json(value))}")
    yield from tables


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        parts = ((_toml(str(key)), _toml(part)) for key, part in value.items() if part is not None)
        inner = ", ".join(f"{key} = {part}" for key, part in parts)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007f")


def continue_from(recipe: Recipe, run: str | Path, stages: str | None = None) -> Recipe:
    """Return the recipe for the model of a trained run, which replaces the first of several stages.

    run: a name that `find_model` takes. stages: "first" keeps the first stage, which then starts from the run, as does
    a recipe that already starts from one. Raise CheckpointError where its folder holds no run.
    """
    folder = find_model(run)
    name, overrides = _model_of(read_config(folder, "--init-from takes the folder of a trained run"), folder)
    is_whole = stages == "first" or recipe.init_from is not None
    left = recipe.stages if is_whole else recipe.stages[1:] or recipe.stages
    return recipe.replace(model=name, model_overrides=overrides, stages=left, init_from=folder)
