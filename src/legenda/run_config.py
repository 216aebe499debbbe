"""The config.json of a folder, read as what a stranger may have written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from legenda.config import Config, merge
from legenda.errors import CheckpointError, ConfigError
from legenda.io import read_json
from legenda.run_files import CONFIG


class _Parts(Config):
    """The types of the parts that every folder may have; what reads a part checks what it holds."""

    model: Mapping[str, Any] | None = None
    data: Mapping[str, Any] | None = None
    environment: Mapping[str, str | None] | None = None
    stages: tuple[Mapping[str, Any], ...] | None = None
    plugins: tuple[Mapping[str, Any], ...] | None = None
    task: str | None = None
    recipe: str | None = None
    extractor: str | None = None


def read_config(folder: Path, hint: str = "a folder of a model holds it; save or train the model again") -> Any:
    """Return the configuration of a folder, without the parts that are null.

    Raise DataError with the `hint` where it cannot be read, and CheckpointError where it is none or has a part of
    another type than Legenda writes.
    """
    path = folder / CONFIG
    content = read_json(path, hint)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is not the configuration of a run; {hint}")
    content = {name: part for name, part in content.items() if part is not None}
    try:
        merge(_Parts, {name: part for name, part in content.items() if name in _Parts.model_fields}, str(path))
    except ConfigError as error:
        raise CheckpointError(f"{error}; {hint}") from error
    return content
