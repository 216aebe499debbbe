"""Where a model is: in a folder, packaged with the library, or on Hugging Face's hub."""

from __future__ import annotations

import re
from pathlib import Path

from legenda.errors import CheckpointError, ConfigError
from legenda.hub import download_model
from legenda.run_files import CONFIG, WEIGHTS

PACKAGED = "photo"
"""The name of the packaged model of photographs."""
ASSETS = Path(__file__).parents[1] / "assets"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def is_run_folder(name: str | Path) -> bool:
    """Return whether a name is the path of a folder with a config.json, and not a packaged model or one of the hub."""
    return (Path(name) / CONFIG).is_file()


def find_model(name: str | Path) -> Path:
    """Return the folder of a model: a path, "photo" for the packaged model, or USER/MODEL of Hugging Face's hub.

    A folder with a config.json precedes the other two. Raise CheckpointError or ConfigError where there is no model.
    """
    path = Path(name)
    if is_run_folder(path):
        return path
    if str(name) == PACKAGED:
        if not (ASSETS / PACKAGED / CONFIG).is_file():
            raise ConfigError("this installation lacks the packaged model photo; name a run folder instead")
        return ASSETS / PACKAGED
    other = path.is_dir() and not (path / WEIGHTS).exists()  # such as files of an export
    if (other or not path.parent.exists()) and _HUB_ID.fullmatch(str(name)):
        return download_model(str(name))
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a folder with a model; train one with `legenda train` or check the path")
    return path
