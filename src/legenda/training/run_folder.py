"""The run folder of a training run: whether it may be used, what it holds, and whether its run is finished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from legenda.errors import CheckpointError
from legenda.io import read_json, write_json
from legenda.models.model import Model
from legenda.plugin_records import check_plugins
from legenda.run_files import CONFIG, STATE, WEIGHTS
from legenda.training.checkpoint import read_progress

_DELETE = "delete the folder to start again"


def check_folder(folder: Path) -> None:
    """Raise CheckpointError unless `folder` is new, empty, or holds a run."""
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; name a folder with --out")
    if folder.exists() and not (folder / CONFIG).exists() and any(not _is_partial(path) for path in folder.iterdir()):
        raise CheckpointError(f"{folder} is not empty and holds no run; name another folder with --out")


def check_new_folder(folder: Path) -> None:
    """Raise CheckpointError unless `folder` is new or empty."""
    check_folder(folder)
    if (folder / CONFIG).exists():
        raise CheckpointError(f"{folder} holds a run already; name another folder with --out, or {_DELETE}")


def init_run_dir(folder: Path, config: dict[str, Any], model: Model) -> None:
    """Create the folder of a run, or check that it holds this run, and delete partially written files."""
    check_folder(folder)
    path = folder / CONFIG
    if path.exists():
        found = _read_config(folder)
        changed = {name for name in {**found, **config} if found.get(name) != _as_json(config.get(name))}
        if changed - {"plugins"}:
            raise CheckpointError(
                f"{folder} holds a run with other settings; name another folder with --out, or {_DELETE}"
            )
        check_plugins(found, path)  # warns of one that has changed
        if (folder / STATE).exists() and not (folder / WEIGHTS).exists() and read_progress(folder).best is not None:
            raise CheckpointError(f"{folder} has lost its {WEIGHTS}, the best model so far; {_DELETE}")
        for partial in filter(_is_partial, folder.iterdir()):
            partial.unlink()
    else:
        write_json(path, config)
    model.save_vocabulary(folder)


def is_finished(folder: Path, recipe: str) -> bool:
    """Return whether a folder holds a finished run of that recipe with its model."""
    if not all((folder / name).exists() for name in (CONFIG, WEIGHTS, STATE)):
        return False
    return _read_config(folder).get("recipe") == recipe and read_progress(folder).finished


def _read_config(folder: Path) -> dict[str, Any]:
    config = read_json(folder / CONFIG, _DELETE)
    if not isinstance(config, dict):
        raise CheckpointError(f"{folder / CONFIG} is not the configuration of a run; {_DELETE}")
    return config


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _is_partial(path: Path) -> bool:
    """Return whether a process was killed while it wrote this file."""
    return path.name.startswith(".") and path.name.endswith(".partial")
