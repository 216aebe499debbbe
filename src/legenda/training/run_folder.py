"""The run folder of a training run: whether it may be used, what it holds, and whether its run is finished."""

from __future__ import annotations

import json
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from legenda.errors import CheckpointError
from legenda.io import read_text, write_json
from legenda.models.base import Model
from legenda.run_folder import CONFIG, STATE, WEIGHTS, read_config
from legenda.training.checkpoint import read_progress
from legenda.training.config import stage_name

_DELETE = "delete the folder to start again"
DATA_DIGEST = "data_digest"
"""The section with a digest of the training and of the validation examples."""
_KEPT = ("environment",)
"""Sections that stay those of the first call."""


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
    """Create the folder of a run, or check that it holds this run, and delete partially written files.

    More epochs of the last stage than before replace the old number, so that a finished run continues. The environment
    stays that of the first call.
    """
    check_folder(folder)
    path = folder / CONFIG
    if path.exists():
        old, new = read_config(folder, _DELETE), json.loads(json.dumps(config))
        new = {name: part for name, part in new.items() if name not in _KEPT and part is not None}
        new |= {name: part for name, part in old.items() if name in _KEPT}
        found, kind = _difference(_with_epochs_of(new, old), new), "settings"
        if found is None or found[0].startswith(DATA_DIGEST):
            found, kind = _vocabulary_difference(folder, model) or found, "data"
        if found is not None:
            name, before, now = found
            raise CheckpointError(
                f"{folder} holds a run with other {kind} ({name} is {before} there, {now} here); name another folder "
                f"with --out, or {_DELETE}"
            )
        if old != new:
            write_json(path, new)
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
    return read_config(folder, _DELETE).get("recipe") == recipe and read_progress(folder).finished


def _with_epochs_of(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return `old` with the epochs that the last stage of `new` has, if those are more."""
    stages, new_stages = list(old.get("stages") or [{}]), new.get("stages") or [{}]
    epochs = stages[-1].get("epochs", 0)
    more = isinstance(epochs, int) and epochs < new_stages[-1].get("epochs", 0)
    if len(stages) == len(new_stages) and more:
        stages[-1] = {**stages[-1], "epochs": new_stages[-1]["epochs"]}
        return {**old, "stages": stages}
    return old


def _difference(old: Any, new: Any, name: str = "") -> tuple[str, str, str] | None:
    """Return the name of the first setting that differs, with both values; None for equal configurations.

    A setting that is missing is null.
    """
    if old == new:
        return None
    if isinstance(old, dict) and isinstance(new, dict):
        found = (_difference(old.get(key), new.get(key), f"{name}.{key}".removeprefix(".")) for key in (*new, *old))
        return next(filter(None, found), None)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new) and name == "stages":
        found = (_difference(*pair, stage_name(stage)) for stage, pair in enumerate(zip(old, new, strict=True)))
        return next(filter(None, found), None)
    before, now = (value if isinstance(value, str) else json.dumps(value) for value in (old, new))
    return name.replace("model.options.", "model."), before, now


def _vocabulary_difference(folder: Path, model: Model) -> tuple[str, str, str] | None:
    """Return the first line that differs in a list of words or answers, as `_difference` does."""
    with TemporaryDirectory() as name:
        model.save_vocabulary(Path(name))
        for path in sorted(Path(name).glob("*.txt")):
            if (folder / path.name).exists():
                lines = (read_text(file, _DELETE).split("\n") for file in (folder / path.name, path))
                for number, (before, now) in enumerate(zip_longest(*lines, fillvalue="missing"), start=1):
                    if before != now:
                        return f"line {number} of {path.name}", before, now
    return None


def _is_partial(path: Path) -> bool:
    """Return whether a process was killed while it wrote this file."""
    return path.name.startswith(".") and path.name.endswith(".partial")
