"""Whether values fit the typed fields of a configuration."""

import types
import typing
from typing import Any


def fits(value: Any, hint: Any) -> bool:
    """Whether a value may stand in a field of that type; whole numbers may stand for floats, but True for no number."""
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(fits(part, typing.get_args(hint)[0]) for part in value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def named(hint: Any) -> str:
    """A type in words for a user."""
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(hint)))
    return getattr(hint, "__name__", str(hint))
