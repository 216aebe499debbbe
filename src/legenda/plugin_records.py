"""The plugins of a run in its config.json: recorded by name and digest when it is trained, checked when it is loaded.

Nothing here runs a plugin: a user names it again, or has installed its package.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from legenda.errors import CheckpointError
from legenda.plugins import REGISTRIES, Plugin, load_entry_points

_LOGGER = logging.getLogger(__name__)
_SECTIONS = {
    "task": "task",
    "data set": "data",
    "feature store": "data",
    "extractor": "extractor",
    "reward": "stages",
    "schedule": "stages",
    "metric": "stages",
}
"""The section of a run's configuration that names parts of a kind; for kinds that are not listed, "model"."""


def describe_plugins(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section "plugins" of a run's configuration: the plugins whose parts the other sections name.

    Each has its name, its digest, and the names of these parts by kind. The result is empty where there are none.
    """
    plugins: dict[Plugin, dict[str, list[str]]] = {}
    for kind, registry in REGISTRIES.items():
        named = set(_names(config.get(_SECTIONS.get(kind, "model"))))
        for name, plugin in registry.registered.items():
            if plugin.digest and name in named:
                plugins.setdefault(plugin, {}).setdefault(kind, []).append(name)
    records = [{"name": plugin.name, "digest": plugin.digest, "parts": parts} for plugin, parts in plugins.items()]
    return {"plugins": records} if records else {}


def check_plugins(config: Any, path: Path, section: str | None = None) -> None:
    """Check that the parts of plugins that a section of a run's configuration names, or all do, are registered.

    path: the file of the configuration. Raise CheckpointError naming a plugin that is missing; warn of one that has
    changed since. No plugin is loaded but those of installed packages.
    """
    for name, digest, parts in _read_records(config, path):
        needed = [part for part in parts if section in (None, _SECTIONS.get(part[0], "model"))]
        owners = {part: _owner(*part) for part in needed}
        for (kind, part), owner in owners.items():
            if owner is None:
                raise CheckpointError(
                    f"{path} needs {kind} {part!r} of the plugin {name}, which is not loaded; name its file, as in "
                    f"--plugin {name}.py, or install its package"
                )
        if any(owner is not None and owner.digest != digest for owner in owners.values()):
            _LOGGER.warning("the plugin %s has changed since %s was written; results may differ", name, path)


def _read_records(config: Any, path: Path) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Return name, digest and parts, by kind and name, of the plugins in a configuration."""
    records = config.get("plugins", []) if isinstance(config, Mapping) else []
    try:
        parts = [[(kind, part) for kind, names in one["parts"].items() for part in names] for one in records]
        return [(one["name"], one["digest"], found) for one, found in zip(records, parts, strict=True)]
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f'{path} has no usable "plugins" part; restore the file') from error


def _owner(kind: str, name: str) -> Plugin | None:
    """Return the plugin that registered a part."""
    load_entry_points()
    return REGISTRIES[kind].registered.get(name) if kind in REGISTRIES else None


def _names(value: Any) -> Iterator[str]:
    """Yield all texts in a part of a configuration; of "mine:model", also the first part; of "a.mine", the suffix."""
    if isinstance(value, str):
        first = re.split("[:#@]", value)[0]
        yield from (value, first, Path(value).suffix, Path(first).suffix)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield str(key)
            yield from _names(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _names(part)
