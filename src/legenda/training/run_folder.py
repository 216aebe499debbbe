"""The run folder: whose it is, what it holds, and whether its run is finished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from legenda.errors import UserError
from legenda.io import read_json, write_json
from legenda.models.checkpoint import CONFIG, WEIGHTS
from legenda.models.model import Model
from legenda.training.checkpoint import STATE, read_progress

_DELETE = "delete the folder to start again"


def check_folder(folder: Path) -> None:
    """UserError unless a run can be kept in `folder`: it is new, empty, or holds a run already."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder with --out")
    if folder.exists() and not (folder / CONFIG).exists() and any(not _is_partial(path) for path in folder.iterdir()):
        raise UserError(f"{folder} is not empty and holds no run; name another folder with --out")


def check_new_folder(folder: Path) -> None:
    """UserError unless `folder` is new or empty."""
    check_folder(folder)
    if (folder / CONFIG).exists():
        raise UserError(f"{folder} holds a run already; name another folder with --out, or {_DELETE}")


def claim_folder(folder: Path, config: dict[str, Any], model: Model) -> None:
    """Makes the folder this run's own, or checks that it already is, and clears what a killed write left."""
    check_folder(folder)
    path = folder / CONFIG
    if path.exists():
        if _read_config(folder) != json.loads(json.dumps(config)):
            raise UserError(f"{folder} holds a run with other settings; name another folder with --out, or {_DELETE}")
        if (folder / STATE).exists() and not (folder / WEIGHTS).exists() and read_progress(folder).best is not None:
            raise UserError(f"{folder} has lost its {WEIGHTS}, the best model so far; {_DELETE}")
        for left in filter(_is_partial, folder.iterdir()):
            left.unlink()
    else:
        write_json(path, config)
    model.save_words(folder)


def is_finished(folder: Path, recipe: str) -> bool:
    """Whether a folder holds a run of that recipe that has trained to its end and kept its model."""
    if not all((folder / name).exists() for name in (CONFIG, WEIGHTS, STATE)):
        return False
    return _read_config(folder).get("recipe") == recipe and read_progress(folder).finished


def _read_config(folder: Path) -> dict[str, Any]:
    config = read_json(folder / CONFIG, _DELETE)
    if not isinstance(config, dict):
        raise UserError(f"{folder / CONFIG} is no configuration of a run; {_DELETE}")
    return config


def _is_partial(path: Path) -> bool:
    """Whether a file was being written when its process was killed."""
    return path.name.startswith(".") and path.name.endswith(".partial")
