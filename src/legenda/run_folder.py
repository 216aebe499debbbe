"""The files of a run folder by name, and its config.json, read as what a stranger may have written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from legenda.config import Config, merge
from legenda.errors import CheckpointError, ConfigError
from legenda.io import read_json

CONFIG = "config.json"
"""The model's configuration, and for a trained run its recipe, data and stages."""
WEIGHTS = "model.safetensors"
"""The weights of the best model."""
STAGE_WEIGHTS = "model_stage{}.safetensors"
"""The best weights of a stage before the last, counted from 1, with which the next stage began."""
VOCABULARY = "vocabulary.txt"
ANSWERS = "answers.txt"
"""The answers of a model for visual question answering."""
SUBWORDS = "subwords.model"
"""The subword segmentation of a translator."""
STATE = "training_state.safetensors"
"""What a stopped training resumes from."""
HISTORY = "metrics.jsonl"
"""Losses and scores, one record a line."""

EVALUATIONS = "evaluation_*.json"
"""Predictions and scores of all splits, as a pattern."""
RUN_FILES = (CONFIG, WEIGHTS, STAGE_WEIGHTS, VOCABULARY, ANSWERS, SUBWORDS, STATE, HISTORY)
"""All of them but the evaluations."""


def weights_path(folder: Path, stage: int | None = None) -> Path:
    """Return the path of the weights of a run, or of one of its earlier stages, counted from 1."""
    return folder / (WEIGHTS if stage is None else STAGE_WEIGHTS.format(stage))


def find_seeds(folder: Path) -> list[Path]:
    """Return the runs seed0, seed1 and so on that `legenda train --seeds` wrote into a folder, by their numbers."""
    runs = {path: path.name.removeprefix("seed") for path in folder.glob("seed*") if (path / CONFIG).is_file()}
    return sorted((path for path, number in runs.items() if number.isdecimal()), key=lambda path: int(runs[path]))


def evaluation_path(folder: Path, split: str, *, ensemble: bool = False, stage: int | None = None) -> Path:
    """Return the path of predictions and scores of a split; those of an ensemble are in the folder of the first run.

    stage: of the model, where that is not the run's last.
    """
    stem = f"evaluation_{split}" if stage is None else f"evaluation_{split}_stage{stage}"
    return folder / f"{stem}_ensemble.json" if ensemble else folder / f"{stem}.json"


class _Parts(Config):
    """The types of the parts that every folder may have; what reads a part checks what it holds."""

    model: Mapping[str, Any] | None = None
    data: Mapping[str, Any] | None = None
    environment: Mapping[str, str | None] | None = None
    stages: tuple[Mapping[str, Any], ...] | None = None
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
