"""Registries of named parts, and plugins: Python files and installed packages that register further parts."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module, metadata
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import iter_modules, resolve_name
from types import ModuleType
from typing import Generic, TypeVar, cast

from pydantic import BeforeValidator, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from legenda.config import C, merge
from legenda.errors import ConfigError, LegendaError, did_you_mean, first_line

__all__ = ["Registry", "load_plugin"]

T = TypeVar("T")
V = TypeVar("V")

_ENTRY_POINTS = "legenda.plugins"
"""The group of entry points whose modules are imported when names are listed, or a name is not known."""
PLUGIN_HINT = " (one of your own needs --plugin FILE, or load_plugin in Python)"
"""The end of a message about a name that is not registered."""
_files: dict[str, Path] = {}
"""The files that `load_plugin` ran, by the names of their modules."""
_entry_points_loaded = False
_registries: list[Registry] = []


class Registry(Generic[T]):
    """Named parts of one kind; iteration gives the names.

    kind: what a part is called in messages, such as "attention". entries: the library's own parts by name, each the
    part itself or "module:attribute", which is imported when it is used. The packages of legenda.extras add theirs.
    """

    def __init__(self, kind: str, entries: Mapping[str, T | str]) -> None:
        self.kind = kind
        self._entries = entries
        self._added: dict[str, tuple[object, str]] = {}
        _registries.append(self)

    @cached_property
    def own(self) -> dict[str, object]:
        """The library's parts by name, those of legenda.extras included: each the part itself or "module:attribute"."""
        return {**self._entries, **_extras()[self.kind]}

    def register(self, name: str) -> Callable[[V], V]:
        """Return a decorator that adds a part under `name`; see `add`."""

        def decorate(part: V) -> V:
            self.add(name, part)
            return part

        return decorate

    def add(self, name: str, part: object, module: str = "") -> None:
        """Add a part; raise ConfigError for a name of the library, or of another module.

        module: where the part is defined, its own by default. A part that its module defines again, as a notebook does,
        replaces the first.
        """
        module = module or getattr(part, "__module__", "") or ""
        if name in self.own:
            raise ConfigError(f"{self.kind} {name!r} belongs to the library; register yours under another name")
        known = self._added.get(name, (None, module))[1]
        if known != module:
            raise ConfigError(f"{self.kind} {name!r} is registered twice, by {known} and by {module}; rename one")
        self._added[name] = (part, module)

    def get(self, name: str) -> T:
        """Return the part of that name; raise ConfigError with the nearest name when there is none."""
        if name not in self:
            hint = did_you_mean(name, [*self.own, *self._added])
            raise ConfigError(f"there is no {self.kind} {name!r}; {hint}{PLUGIN_HINT}")
        part = self.own[name] if name in self.own else self._added[name][0]
        return resolve_name(part) if isinstance(part, str) else cast(T, part)

    @property
    def registered(self) -> tuple[str, ...]:
        """The names of the parts that are not the library's own."""
        _load_entry_points()
        return tuple(self._added)

    def of_kind(self: Registry[type[C]]) -> BeforeValidator:
        """Return the annotation of a field whose class its `kind` names: an instance, its kind, or a mapping with
        `kind`.
        """

        def convert(value: object) -> object:
            value = {"kind": value} if isinstance(value, str) else value
            if not isinstance(value, Mapping):
                return value
            try:
                return self.configure(value, str(value.get("kind")))
            except ConfigError as error:
                raise ValueError(error) from error  # to which pydantic adds the place

        return BeforeValidator(convert)

    def configure(self: Registry[type[C]], settings: Mapping[str, object], name: str) -> C:
        """Return a configuration of the class that `kind` in the settings names; `name` is what messages call it."""
        kind = settings.get("kind")
        if not isinstance(kind, str):
            raise ConfigError(f"the {self.kind} names no kind; choose from {', '.join(self)}")
        return merge(self.get(kind), settings, name)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check that a string annotated with this registry is a name in it."""

        def check(name: str) -> str:
            if name not in self:
                self.get(name)  # raises
            return name

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __contains__(self, name: object) -> bool:
        if name not in self.own and name not in self._added:
            _load_entry_points()
        return name in self.own or name in self._added

    def __iter__(self) -> Iterator[str]:
        _load_entry_points()
        return iter((*self.own, *self._added))


@cache
def _extras() -> Mapping[str, dict[str, object]]:
    """Return what the packages in legenda.extras name in their PARTS, by kind and name."""
    parts: Mapping[str, dict[str, object]] = defaultdict(dict)
    for package in iter_modules([str(Path(__file__).parent / "extras")]):
        for kind, named in import_module(f"legenda.extras.{package.name}").PARTS.items():
            parts[kind].update(named)
    return parts


def load_plugin(path: str | Path) -> ModuleType:
    """Run a Python file that registers parts, once, as the module of its name, and return the module.

    The folder of the file is added to the end of `sys.path`, so that the file can import others next to it, and other
    processes can unpickle its classes. Raise ConfigError for a file that cannot be read, that fails, or whose name is
    that of another module.
    """
    path = Path(path).resolve()
    name = path.stem
    if _files.get(name) == path:
        return sys.modules[name]
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error}); name a Python file") from error
    if not name.isidentifier() or name == "__main__":
        raise ConfigError(f"{path} has no name of a Python module; rename the file, as in my_plugin.py")
    other = _files.get(name) or getattr(find_spec(name), "origin", None)
    if other is not None and Path(other).resolve() != path:
        raise ConfigError(f"{path} has the name of the module in {other}; rename your file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = run_source(path, source, name)
    _files[name] = path
    return module


def plugin_files() -> tuple[Path, ...]:
    """Return the files that were loaded, for other processes."""
    return tuple(_files.values())


def plugin_options() -> list[str]:
    """Return the options --plugin of the files that were loaded, for the command line of another process."""
    return [argument for path in plugin_files() for argument in ("--plugin", str(path))]


def _load_entry_points() -> None:
    """Import every module of the group "legenda.plugins", once; raise ConfigError naming one that fails."""
    global _entry_points_loaded
    if _entry_points_loaded:
        return
    _entry_points_loaded = True  # first, because a plugin may look names up while it is imported
    for point in metadata.entry_points(group=_ENTRY_POINTS):
        try:
            point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise ConfigError(
                f"the plugin {point.value} cannot be loaded ({reason_of(error)}); correct or uninstall it"
            ) from error


def run_source(path: Path, source: bytes, name: str) -> ModuleType:
    """Run the bytes of a user's Python file as the module `name`; no compiled file is written or read.

    Raise ConfigError when it fails.
    """
    spec = spec_from_file_location(name, path, loader=SourceFileLoader(name, str(path)))
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses, type hints, pickle and inspect look their module up
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ConfigError(f"{path} fails while it is loaded ({reason_of(error)}); correct it") from error
    return module


def reason_of(error: BaseException) -> str:
    """Return one line about an exception of a user's code, whose message and name may fail themselves."""
    try:
        message = first_line(error)
        return message if isinstance(error, LegendaError) else f"{type(error).__name__}: {message}"
    except BaseException:
        name = object.__repr__(error).split()[0].rpartition(".")[2].removeprefix("<")
        return f"{name}: its message cannot be read"
