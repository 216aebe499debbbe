"""Registries: named parts of one kind, to which users add their own by a decorator, a file or an entry point."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from legenda.errors import ConfigError, did_you_mean

T = TypeVar("T")
V = TypeVar("V")

ENTRY_POINTS = "legenda.plugins"
"""The group of entry points whose modules are imported when names are listed, or a name is not known."""


class Registry(Generic[T]):
    """Named parts of one kind; iteration gives the names.

    kind: what a part is called in messages, such as "attention". entries: the library's own parts by name, each the
    part itself or, as "module:attribute", where it is; such a part is imported when it is first used.
    """

    def __init__(self, kind: str, entries: Mapping[str, T | str]) -> None:
        self.kind = kind
        self._entries: dict[str, Any] = dict(entries)
        self._own = frozenset(entries)

    def register(self, name: str) -> Callable[[V], V]:
        """Return a decorator that adds a part under `name`; see `add`."""

        def decorate(part: V) -> V:
            self.add(name, part)
            return part

        return decorate

    def add(self, name: str, part: Any) -> None:
        """Add a part, or replace one that was added before; raise ConfigError for a name of the library's own."""
        if name in self._own:
            raise ConfigError(f"{self.kind} {name!r} belongs to the library; register yours under another name")
        self._entries[name] = part

    def get(self, name: str) -> T:
        """Return the part of that name; raise ConfigError with the nearest name when there is none."""
        if name not in self:
            raise ConfigError(f"there is no {self.kind} {name!r}; {did_you_mean(name, self._entries)}")
        return resolve(self._entries[name])

    def name_of(self, part: object) -> str:
        """Return the name of a registered class or function; raise ConfigError when it has none."""
        where = f"{getattr(part, '__module__', '')}:{getattr(part, '__qualname__', '')}"
        for name, entry in self._entries.items():
            if entry is part or entry == where:
                return name
        raise ConfigError(f"{part!r} is not a registered {self.kind}; register it under a name")

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            load_entry_points()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        load_entry_points()
        return iter(tuple(self._entries))


def resolve(reference: Any) -> Any:
    """Return what "module:attribute" refers to, or the argument itself where it is not a text."""
    if not isinstance(reference, str):
        return reference
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)


_loaded: set[str] = set()


def load_entry_points() -> None:
    """Import every module of the group "legenda.plugins", once; raise ConfigError naming one that fails."""
    if ENTRY_POINTS in _loaded:
        return
    _loaded.add(ENTRY_POINTS)
    for point in metadata.entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:
            raise ConfigError(
                f"the plugin {point.value} cannot be loaded ({reason_of(error)}); correct or uninstall it"
            ) from error


def run_file(path: str | Path) -> ModuleType:
    """Run a user's Python file, which may register parts; raise ConfigError when it cannot be read or fails."""
    path = Path(path)
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error}); name a Python file") from error
    return run_source(path, source, f"legenda_file_{path.stem}")


def run_source(path: Path, source: bytes, name: str) -> ModuleType:
    """Run the bytes of a user's Python file as the module `name`; no compiled file is written or read.

    Raises ConfigError when it fails.
    """
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses, type hints and pickle look their module up
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(f"{path} fails while it is loaded ({reason_of(error)}); correct it") from error
    return module


def reason_of(error: BaseException) -> str:
    """Return one line about an exception of a user's code."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
