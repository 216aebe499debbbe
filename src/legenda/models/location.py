"""Where a model is: in a folder, packaged with the library, or on Hugging Face's hub."""

from __future__ import annotations

import re
from pathlib import Path

from legenda.errors import CheckpointError, ConfigError
from legenda.hub import download_model
from legenda.run_files import CONFIG

PACKAGED = "photo"
"""The name of the packaged model of photographs."""
ASSETS = Path(__file__).parents[1] / "assets"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def find_model(name: str | Path) -> Path:
    """Return the folder of a model: a path, "photo" for the packaged model, or USER/MODEL of Hugging Face's hub.

    A folder that exists precedes the other two. Raise CheckpointError or ConfigError where there is no model.
    """
    path = Path(name)
    if (path / CONFIG).is_file():
        return path
    if str(name) == PACKAGED:
        if not (ASSETS / PACKAGED / CONFIG).is_file():
            raise ConfigError("this installation lacks the packaged model photo; name a run folder instead")
        return ASSETS / PACKAGED
    if not path.parent.exists() and _HUB_ID.fullmatch(str(name)):
        return download_model(str(name))
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a folder with a model; train one with `legenda train` or check the path")
    return path
