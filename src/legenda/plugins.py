"""Registries of named parts, and plugins: Python files and installed packages that register further parts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module, metadata
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from pydantic import BeforeValidator, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from legenda.config import merge
from legenda.errors import ConfigError, LegendaError, did_you_mean

T = TypeVar("T")
V = TypeVar("V")

ENTRY_POINTS = "legenda.plugins"
"""The group of entry points whose modules are imported when names are listed, or a name is not known."""


@dataclass(frozen=True)
class Plugin:
    """A module that registers parts.

    digest: the first 16 hex digits of the SHA-256 digest of its file. path: of a file that `load_plugin` ran.
    """

    name: str
    digest: str
    path: Path | None = None


_INSTALLED = Plugin("installed plugins", "")
"""Stands for the entry points once they are loaded."""
REGISTRIES: dict[str, Registry[Any]] = {}
"""Every registry by its kind; a registry is created when its module is imported."""
_plugins: dict[str, Plugin] = {}
_entry_points_lock = threading.RLock()
_importing: list[bool] = []
_loading: list[Plugin] = []


class Registry(Generic[T]):
    """Named parts of one kind; iteration gives the names.

    kind: what a part is called in messages, such as "attention". entries: the library's own parts by name, each the
    part itself or, as "module:attribute", where it is; such a part is imported when it is first used.
    """

    def __init__(self, kind: str, entries: Mapping[str, T | str]) -> None:
        self.kind = kind
        self._entries: dict[str, Any] = dict(entries)
        self._own = frozenset(entries)
        self._plugins: dict[str, Plugin] = {}
        REGISTRIES[kind] = self

    def register(self, name: str) -> Callable[[V], V]:
        """Return a decorator that adds a part under `name`; see `add`."""

        def decorate(part: V) -> V:
            self.add(name, part, part)
            return part

        return decorate

    def add(self, name: str, part: Any, source: Any = None) -> None:
        """Add a part; raise ConfigError for a name that is taken.

        source: the class or function that the user wrote, where it is not the part itself. A class or function that is
        defined again under the same name, as in a notebook, replaces the first.
        """
        plugin = _loading[-1] if _loading else _plugin_of(part if source is None else source)
        if name in self._own:
            raise ConfigError(f"{self.kind} {name!r} belongs to the library; register yours under another name")
        known = self._plugins.get(name)
        if known is not None and (_loading or known.name != plugin.name):
            raise ConfigError(
                f"{self.kind} {name!r} is registered twice, by {known.name} and by {plugin.name}; rename one"
            )
        self._entries[name] = part
        self._plugins[name] = plugin

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

    @property
    def registered(self) -> dict[str, Plugin]:
        """The plugin of every part that is not the library's own, by the name of the part."""
        load_entry_points()
        return dict(self._plugins)

    def forget(self, plugin: str) -> None:
        """Remove the parts of a plugin."""
        for name in [name for name, owner in self._plugins.items() if owner.name == plugin]:
            del self._entries[name], self._plugins[name]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check that a string annotated with this registry is a name in it."""

        def check(name: str) -> str:
            if name not in self:
                self.get(name)  # raises
            return name

        return core_schema.no_info_after_validator_function(check, handler(source))

    def of_kind(self) -> BeforeValidator:
        """Return the annotation of a field whose class its `kind` names: an instance, its kind, or a mapping with
        `kind`.
        """

        def convert(value: Any) -> Any:
            value = {"kind": value} if isinstance(value, str) else value
            if not isinstance(value, Mapping):
                return value
            kind = value.get("kind")
            if not isinstance(kind, str):
                raise ConfigError(f"the {self.kind} names no kind; choose from {', '.join(self)}")
            return merge(cast(Any, self.get(kind)), value, self.kind)

        return BeforeValidator(convert)

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


def load_plugin(path: str | Path) -> ModuleType:
    """Run a Python file that registers parts, as the module of its name, and return the module.

    The folder of the file is added to the end of `sys.path`, so that the file can import others next to it, and other
    processes can unpickle its classes. An unchanged file is run once; one that has changed is run again, and its
    parts replace the earlier ones. Raise ConfigError for a file that cannot be read, that fails, or whose name is that
    of another module.
    """
    path = Path(path).resolve()
    source, name = read_source(path), path.stem
    plugin = Plugin(name, _digest(source), path)
    if _plugins.get(name) == plugin:
        return sys.modules[name]
    _check_name(plugin)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    forget_plugin(name)
    with _load(plugin):
        module = run_source(path, source, name)
    return module


def plugin_files() -> tuple[Path, ...]:
    """Return the files that were loaded, for other processes."""
    return tuple(plugin.path for plugin in _plugins.values() if plugin.path is not None)


def plugin_options() -> list[str]:
    """Return the options --plugin of the files that were loaded, for the command line of another process."""
    return [text for path in plugin_files() for text in ("--plugin", str(path))]


def load_entry_points() -> None:
    """Import every module of the group "legenda.plugins", once; raise ConfigError naming one that fails."""
    with _entry_points_lock:
        if _INSTALLED.name in _plugins or _importing:
            return
        _importing.append(True)  # a plugin may look names up while it is imported
        try:
            for point in metadata.entry_points(group=ENTRY_POINTS):
                _load_entry_point(point)
            _plugins[_INSTALLED.name] = _INSTALLED
        finally:
            _importing.clear()


def _load_entry_point(point: metadata.EntryPoint) -> None:
    try:
        with _load(Plugin(point.module, _digest_of_file(getattr(find_spec(point.module), "origin", None)))):
            point.load()
    except Exception as error:
        raise ConfigError(
            f"the plugin {point.value} cannot be loaded ({reason_of(error)}); correct or uninstall it"
        ) from error


def read_source(path: Path) -> bytes:
    """Return the bytes of a user's Python file; raise ConfigError when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error}); name a Python file") from error


def run_source(path: Path, source: bytes, name: str) -> ModuleType:
    """Run the bytes of a user's Python file as the module `name`; no compiled file is written or read.

    Raises ConfigError when it fails.
    """
    spec = spec_from_file_location(name, path, loader=SourceFileLoader(name, str(path)))
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses, type hints, pickle and inspect look their module up
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(f"{path} fails while it is loaded ({reason_of(error)}); correct it") from error
    return module


def reason_of(error: BaseException) -> str:
    """Return one line about an exception of a user's code."""
    message = (str(error).splitlines() or [""])[0]
    return message if isinstance(error, LegendaError) else f"{type(error).__name__}: {message}"


@contextmanager
def _load(plugin: Plugin) -> Iterator[None]:
    """Attribute what is registered to a plugin; where that fails, nothing of it stays registered."""
    _loading.append(plugin)
    try:
        yield
        _plugins[plugin.name] = plugin
    except BaseException:
        forget_plugin(plugin.name)
        raise
    finally:
        _loading.pop()


def forget_plugin(name: str) -> None:
    """Remove a plugin and its parts."""
    _plugins.pop(name, None)
    for registry in REGISTRIES.values():
        registry.forget(name)


def _check_name(plugin: Plugin) -> None:
    name, path = plugin.name, plugin.path
    known = _plugins.get(name)
    if known is not None and known.path != path:
        raise ConfigError(f"{known.path} and {path} are both called {name}; rename one of these plugins")
    if not name.isidentifier() or name == "__main__":
        raise ConfigError(f"{path} has no name of a Python module; rename the file, as in my_plugin.py")
    spec = find_spec(name)
    if spec is not None and spec.origin is not None and Path(spec.origin).resolve() != path:
        raise ConfigError(f"{path} has the name of the module in {spec.origin}; rename your file")


def _plugin_of(part: Any) -> Plugin:
    """Return the module that defines a part, as a plugin; one without a file has no digest."""
    name = getattr(part, "__module__", "") or ""
    path = getattr(sys.modules.get(name), "__file__", None)
    if name == "__main__" and path is not None:
        name = Path(path).stem
    return Plugin(name, _digest_of_file(path))


def _digest_of_file(path: str | None) -> str:
    return "" if path is None or not Path(path).is_file() else _digest(Path(path).read_bytes())


def _digest(source: bytes) -> str:
    return sha256(source).hexdigest()[:16]
