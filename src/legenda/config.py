"""Configurations: frozen pydantic models that stand in the file of the modules they configure.

The docstring under a field is its description. A field may be annotated with the registry that its name must be in,
`norm: Annotated[str, NORMS] = "none"`. Values are checked without conversion: no text is taken for a number.
"""

from __future__ import annotations

import ast
import inspect
import json
import logging
import math
import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, cast, get_origin

from pydantic import (
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from legenda.errors import ConfigError, DataError, did_you_mean

__all__ = ["Config", "to_json"]

C = TypeVar("C", bound="Config")
T = TypeVar("T")
_LOG = logging.getLogger(__name__)

PositiveInt = Annotated[int, Field(ge=1, le=2**31 - 1)]
NonNegativeInt = Annotated[int, Field(ge=0, le=2**63 - 1)]
Count = Annotated[int, Field(ge=1, le=1000)]
NonNegativeCount = Annotated[int, Field(ge=0, le=1000)]
"""Numbers of modules, cells or steps: a billion of them in the configuration of a stranger would fill memory."""
PositiveFloat = Annotated[float, Field(gt=0, le=2.0**63)]
NonNegativeFloat = Annotated[float, Field(ge=0, le=2.0**63)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
Integer = Annotated[int, Strict()]
Number = Annotated[float, Strict(), AllowInfNan(False)]
Id = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
"""Scalars of JSON in schemas: no text or truth value is a number; an id may be a whole number, and becomes text."""
Precision = Literal["float32", "bf16", "fp16"]
"""The precision in which models compute."""


class _ConfigMeta(type(BaseModel)):
    """Calls of a configuration's class raise ConfigError, one sentence, instead of pydantic's ValidationError."""

    def __call__(cls: type[T], *args: object, **values: object) -> T:
        try:
            return super().__call__(*args, **values)
        except ValidationError as error:
            name = "--" if cls.__name__.endswith(("Options", "Command")) else cls.__name__
            raise ConfigError(describe(error, cast(Any, cls), name)) from None


class Config(BaseModel, metaclass=_ConfigMeta):
    """Base class of configurations; unknown fields, wrong types and values out of bounds raise ConfigError."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    @model_validator(mode="after")
    def _check_paths(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            parts = value if isinstance(value, tuple) else (value,)
            if any(isinstance(part, Path) and "\0" in str(part) for part in parts):
                raise ConfigError(f"{name} holds a path with a zero byte, which no file has; correct it")
        return self

    def replace(self, **changes: object) -> Self:
        """Return a copy with some fields changed; fields that were never set follow from the others again."""
        return type(self)(**{name: getattr(self, name) for name in self.model_fields_set} | changes)


def descriptions(kind: type[BaseModel]) -> Mapping[str, str]:
    """Return the descriptions of the fields of a configuration that have one, by name.

    They are read from the source where a message or a help needs them: pydantic would read it at every start.
    """
    texts = {name: field.description for name, field in kind.model_fields.items() if field.description}
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] not in ("builtins", "pydantic"):
            texts = {**_read_descriptions(base), **texts}
    return {name: texts[name] for name in kind.model_fields if name in texts}


@cache
def _read_descriptions(kind: type) -> Mapping[str, str]:
    """Return the texts below the fields in the source of a class, without those of its bases."""
    try:
        [source] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError):  # no source, or one that cannot stand on its own
        return {}
    texts: dict[str, str] = {}
    for field, text in pairwise(cast(ast.ClassDef, source).body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(line))):
                texts[name] = inspect.cleandoc(line)
    return texts


def merge(base: type[C] | C, changes: Mapping[str, object], name: str) -> C:
    """Return a configuration with `changes` over `base`: an instance, or a class with its defaults.

    The changes may come from Python, TOML or JSON: lists become tuples, as does a single path, strings become paths,
    and a mapping is merged into the nested configuration of its field, unless it names another `kind`. `name` is what
    messages call it, such as "ngsan" or "data". Raise ConfigError for an unknown field (the nearest one is named), a
    wrong value, a field that has no value, and changes that are no mapping.
    """
    if not isinstance(changes, Mapping):
        raise ConfigError(f"{name} must be a table of options, not {changes!r:.80}")
    kind: type[C] = base if isinstance(base, type) else type(base)
    values = dict(changes) if isinstance(base, type) else _overlay(base, changes)
    for field, value in values.items():
        if isinstance(value, str | Path) and field in kind.model_fields:
            values[field] = [value] if get_origin(kind.model_fields[field].annotation) is tuple else value
    try:
        merged = kind.model_validate_json(json.dumps(to_json(values), default=repr))
    except ValidationError as error:
        raise ConfigError(describe(error, kind, name)) from None
    if not isinstance(base, type):
        _log_other_kinds(base, merged, changes, name)
    return merged


def _overlay(base: Config, changes: Mapping[str, object]) -> dict[str, object]:
    values = {field: getattr(base, field) for field in type(base).model_fields}
    for field, value in changes.items():
        current = values.get(field)
        if isinstance(current, Config) and isinstance(value, Mapping):
            same = value.get("kind") in (None, getattr(current, "kind", None))
            value = _overlay(current, value) if same else value
        values[field] = value
    return values


def _log_other_kinds(base: Config, merged: Config, changes: Mapping[str, object], name: str) -> None:
    """Log what the changes drop by naming another `kind` of a nested configuration."""
    for field, change in changes.items():
        old, new = getattr(base, field), getattr(merged, field)
        if isinstance(old, Config) and isinstance(new, Config) and isinstance(change, Mapping | str):
            inner = change if isinstance(change, Mapping) else {}
            if type(old) is not type(new):
                log_dropped(f"{name}.{field}", old, new, inner)
            elif isinstance(change, Mapping):
                _log_other_kinds(old, new, inner, f"{name}.{field}")


def log_dropped(part: str, old: Config, new: Config, changes: Mapping[str, object]) -> None:
    """Log, in one line, the settings of `old` that a configuration of another kind, made from `changes`, is without."""
    fields = {name: field for name, field in type(old).model_fields.items() if name not in ("kind", *changes)}
    defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    values = {name: getattr(old, name) for name in fields}
    dropped = [name for name in fields if values[name] not in (defaults[name], getattr(new, name, defaults[name]))]
    if dropped:
        settings = ", ".join(f"{name}={json.dumps(to_json(values[name]))}" for name in dropped)
        _LOG.warning("%s is of the kind %s now, without the %s", part, getattr(new, "kind", ""), settings)


def describe(error: ValidationError, kind: type, name: str) -> str:
    """Return the first error of a validation as one sentence: what, where, what is allowed."""
    first = error.errors(include_url=False)[0]
    place = first["loc"][:-1] if first["loc"][-1:] == ("str",) else first["loc"]  # the member of a union
    *path, last = place or ("",)
    steps = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in place]
    owner = "".join((name, *steps[:-1]))
    holder, field, _ = _find_field(kind, place)
    about = " ".join(descriptions(holder).get(field, "").split()).rstrip(".") if field else ""
    if first["type"] == "extra_forbidden":
        known = getattr(_find_field(kind, path)[-1], "model_fields", {})
        return f"{owner} has no option {last!r}; {did_you_mean(str(last), known)}"
    if first["type"] == "json_invalid" and "surrogate" in first["msg"]:  # of `merge`
        return f"{name} holds text that is not Unicode, such as the name of a file that is not UTF-8; rename the file"
    if first["type"] == "missing" and isinstance(last, int):
        return f"{owner} needs at least {last + 1} values, not {first['input']!r}"
    if first["type"] == "missing":
        return f"{owner} needs {last}" + (f": {about}" if about else "")
    where = "".join((name, *steps))
    if name == "--":  # the options of a command
        where = f"--{'.'.join(map(str, place))}".replace("_", "-")
    if first["type"] == "value_error":  # raised by a validator of ours
        return f"{where}: {first['ctx']['error']}"
    value = repr(first["input"])
    value = value if len(value) <= 80 else f"{value[:77]}..."
    message = first["msg"].partition(" or an instance of ")[0].replace("Input should", "must", 1)
    expected = re.sub("^(?!must)", "is wrong: ", message)
    return f"{where} {expected}, not {value}" + (f" ({about})" if about else "")


def conform(content: object, schema: type[T], where: object, hint: str) -> T:
    """Return JSON as a schema has it, of dataclasses, lists, dictionaries and scalars; other keys are left out.

    Raise DataError with the `hint`, naming the place in `where` of what is missing or of another type.
    """
    try:
        return _adapter(schema).validate_python(content)
    except ValidationError as error:
        raise DataError(f"{describe(error, schema, str(where))}; {hint}") from None


def get_field(content: object, key: str, schema: type[T], where: object, hint: str) -> T:
    """Return an entry of a JSON object as a schema has it; otherwise as `conform`."""
    if not isinstance(content, Mapping) or key not in content:
        raise DataError(f"{where} has no '{key}'; {hint}")
    return conform(content[key], schema, f"{where}: {key}", hint)


@cache
def _adapter(schema: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(schema)


def _find_field(kind: Any, path: Sequence[int | str]) -> tuple[Any, Any, object]:
    """Return a class of configurations, the last field of a path in it, and the class of that field's value.

    An item of a tuple or a mapping is described by the field that holds it.
    """
    owner: object = kind
    last: int | str = ""
    for name in path:
        inner = getattr(kind, "model_fields", {}).get(name)
        if inner is None:
            break
        owner, last, kind = kind, name, _config_of(inner.annotation)
    return owner, last, kind


def _config_of(annotation: object) -> object:
    """Return the configuration class in an annotation such as `SelfCriticalConfig | None`."""
    parts = (annotation, *getattr(annotation, "__args__", ()))
    return next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)


def to_json(value: object, folder: Path | None = None) -> Any:
    """Return a configuration as JSON can hold it: nested dictionaries and lists, and paths as strings.

    folder: the folder to which written paths are relative; by default they stay as they are.
    """
    if isinstance(value, BaseModel):
        names = sorted(type(value).model_fields, key=lambda name: name != "kind")  # the kind first
        return {name: to_json(getattr(value, name), folder) for name in names}
    if isinstance(value, Mapping):
        return {str(key): to_json(part, folder) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(part, folder) for part in value]
    if isinstance(value, Path):
        return str(value) if folder is None else os.path.relpath(value.resolve(), folder.resolve())
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def map_paths(value: Any, change: Callable[[Path], Path]) -> Any:
    """Return a configuration with its paths changed, also those in nested configurations and tuples."""
    if isinstance(value, Config):
        return value.replace(**{name: map_paths(getattr(value, name), change) for name in type(value).model_fields})
    if isinstance(value, tuple):
        return tuple(map_paths(part, change) for part in value)
    return change(value) if isinstance(value, Path) else value
