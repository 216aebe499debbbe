"""Configurations: frozen dataclasses, checked against the types of their fields, merged and written as JSON.

A field may be annotated with the registry that its name must be in, `norm: Annotated[str, NORMS] = "none"`, and in a
`Bounded` configuration with the bounds of its number, `dim: PositiveInt = 512`.
"""

from __future__ import annotations

import dataclasses
import math
import os
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from legenda.errors import ConfigError, did_you_mean
from legenda.plugins import Registry

T = TypeVar("T")


@dataclass(frozen=True)
class Bound:
    """The bounds of a number with which a field is annotated: the lower ones in words and as a condition.

    most: by default the largest 64-bit integer, whose products are finite in float32.
    """

    words: str
    holds: Callable[[float], bool]
    most: float = 2**63 - 1


PositiveInt = Annotated[int, Bound("at least 1", lambda value: value >= 1)]
NonNegativeInt = Annotated[int, Bound("0 or more", lambda value: value >= 0)]
Count = Annotated[int, Bound("at least 1", lambda value: value >= 1, most=1000)]
NonNegativeCount = Annotated[int, Bound("0 or more", lambda value: value >= 0, most=1000)]
"""Numbers of modules, cells or steps: a billion of them in the configuration of a stranger would fill memory."""
PositiveFloat = Annotated[float, Bound("above 0", lambda value: value > 0)]
NonNegativeFloat = Annotated[float, Bound("0 or more", lambda value: value >= 0)]
Probability = Annotated[float, Bound("in [0, 1)", lambda value: 0 <= value < 1)]


class Bounded:
    """Base class of configurations: raise ConfigError for a number outside the bounds in its field's annotation.

    None is within all bounds. A field that a subclass declares anew keeps its bounds. section: what precedes the names
    of the fields in messages; "--" for options of a command.
    """

    section: ClassVar[str] = ""

    def values_of(self, *names: str) -> dict[str, Any]:
        """Return the values of fields and properties by name."""
        return {name: getattr(self, name) for name in names}

    def __post_init__(self) -> None:
        for name, bound in _bounds(type(self)).items():
            value = getattr(self, name)
            label = self.section + (name.replace("_", "-") if self.section == "--" else name)
            for number in value if isinstance(value, tuple) else (value,):
                if number is not None and (number == math.inf or not bound.holds(number)):
                    raise ConfigError(f"{label} must be {bound.words}, not {number}")
                if number is not None and number > bound.most:
                    raise ConfigError(f"{label} must be at most {bound.most}, not {number}")


@cache
def _bounds(kind: type) -> dict[str, Bound]:
    """Return the bounds of fields by name: of numbers, and of those in tuples and unions."""
    hints = [item for base in reversed(kind.__mro__) for item in get_type_hints(base, include_extras=True).items()]
    marks = ((name, part) for name, hint in hints for part in (hint, *get_args(hint)))
    return {name: mark for name, part in marks for mark in getattr(part, "__metadata__", ()) if isinstance(mark, Bound)}


class _MismatchError(Exception):
    """A value does not have the type of its field."""


def merge(base: type[T] | T, changes: Mapping[str, Any], name: str) -> T:
    """Return a configuration with `changes` over `base`: an instance, or a class with its defaults.

    The changes may come from Python or from JSON: lists become tuples, texts become paths, whole numbers become floats
    and mappings become nested dataclasses where the field has that type. `name` is what messages call it, such as
    "ngsan" or "data". Raises ConfigError for an unknown key (the nearest one is named), for a value of the wrong type
    (the right one is named) and for a field that has no value.
    """
    kind: Any = base if isinstance(base, type) else type(base)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values = {} if isinstance(base, type) else {key: getattr(base, key) for key in fields}
    hints = get_type_hints(kind, include_extras=True)
    for key, value in changes.items():
        if key not in fields:
            raise ConfigError(f"{name} has no option {key!r}; {did_you_mean(str(key), fields)}")
        try:
            values[key] = _convert(value, hints[key], f"{name}.{key}", values.get(key))
        except _MismatchError:
            raise ConfigError(f"{name} takes {key} as {describe_type(hints[key])}, not {value!r}") from None
    for key, field in fields.items():
        if key not in values and field.default is field.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{name} needs {key}; give it a value of type {describe_type(hints[key])}")
    return kind(**values)


def check_types(config: Any, name: str) -> None:
    """Raise ConfigError when a field of a dataclass holds a value of the wrong type; for `__post_init__`."""
    hints = get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        try:
            converted = _convert(value, hints[field.name], f"{name}.{field.name}")
        except _MismatchError:
            converted = None
        if converted != value:
            raise ConfigError(f"{name} takes {field.name} as {describe_type(hints[field.name])}, not {value!r}")


def to_json(value: Any, folder: Path | None = None) -> Any:
    """Return a configuration as JSON can hold it: nested dictionaries and lists, and paths as texts.

    folder: what paths are written relative to; by default they stay as they are.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name), folder) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(part, folder) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(part, folder) for part in value]
    if isinstance(value, Path):
        return str(value) if folder is None else os.path.relpath(value.resolve(), folder.resolve())
    return value


def map_paths(value: Any, change: Callable[[Path], Path]) -> Any:
    """Return a configuration with its paths changed, also those in nested dataclasses and tuples."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        paths = {field.name: map_paths(getattr(value, field.name), change) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **paths)
    if isinstance(value, tuple):
        return tuple(map_paths(part, change) for part in value)
    return change(value) if isinstance(value, Path) else value


def describe_type(hint: Any) -> str:
    """Return the type of a field in words."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, parts))
    if origin in (Union, types.UnionType):
        return " or ".join(map(describe_type, parts))
    if origin is Annotated:
        return describe_type(parts[0])
    if origin is tuple:
        return f"tuple of {describe_type(parts[0])}"
    if origin is not None:
        return f"{origin.__name__} of {' to '.join(map(describe_type, parts))}".lower()
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))


def _convert(value: Any, hint: Any, name: str, current: Any = None) -> Any:
    """Return the value as its field holds it; raise _MismatchError when it does not have that type.

    `current` is the value so far, into which a mapping is merged where it is a dataclass.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        value = _convert(value, parts[0], name, current)
        for registry in parts[1:]:
            if isinstance(registry, Registry) and value not in registry:
                registry.get(value)  # raises
        return value
    if origin is Literal:
        return _require(value, any(value == part and type(value) is type(part) for part in parts))
    if origin in (Union, types.UnionType):
        return _convert_union(value, parts, name, current)
    if origin is tuple:
        _require(value, isinstance(value, tuple | list))
        repeated = parts[1:] == (Ellipsis,)
        _require(value, repeated or len(parts) == len(value))
        each = parts[:1] * len(value) if repeated else parts
        return tuple(_convert(part, kind, name) for part, kind in zip(value, each, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        _require(value, isinstance(value, Mapping))
        key_type, value_type = parts
        return {_convert(key, key_type, name): _convert(part, value_type, name) for key, part in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return merge(current if isinstance(current, hint) else hint, value, name)  # pyrefly: ignore
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint in (int, float):
        whole = isinstance(value, int) and not isinstance(value, bool)
        _require(value, hint is int or not whole or abs(value) < 2**1000)  # larger ones are no floats
        return hint(_require(value, whole or (hint is float and isinstance(value, float))))
    return _require(value, isinstance(value, origin or hint))


def _convert_union(value: Any, kinds: tuple[Any, ...], name: str, current: Any) -> Any:
    """Return the value as the first of several types that it has."""
    several = sum(map(dataclasses.is_dataclass, kinds)) > 1
    for kind in kinds:
        try:
            return _convert(value, kind, name, current)
        except _MismatchError:
            continue
        except ConfigError:
            if not several:
                raise
    raise _MismatchError


def _require(value: Any, condition: bool) -> Any:
    if not condition:
        raise _MismatchError
    return value
