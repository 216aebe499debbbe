"""Predictions of a split by a run of any task."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from legenda.errors import ConfigError, DataError
from legenda.evaluation.data import check_extractor
from legenda.evaluation.runs import Run
from legenda.tasks.base import predict_split
from legenda.terminal import ProgressBar, no_progress_bar

CHUNK_SIZE = 200
"""Examples between two updates of the progress bar."""


def reject_options(options: Any, names: Iterable[str], reason: str) -> None:
    """Raise ConfigError where one of the named fields of a dataclass is not its default; `reason` ends the message."""
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    for name in names:
        if getattr(options, name) != defaults[name]:
            raise ConfigError(f"--{name.replace('_', '-')} {reason}")


def reject_captioner_options(run: Run, options: Any, names: Iterable[str]) -> None:
    """Raise ConfigError where one of the named options, which are for captioners, is set."""
    reject_options(options, names, f"is for captioners, but {run.folder} was trained for {run.task.name}; leave it out")


def load_examples(run: Run, split: str) -> Any:
    """Return a split of the run's data; raise LegendaError where it is empty or of another extractor."""
    examples: Any = run.data().split(split)
    check_extractor(run, examples)
    if not len(examples):
        raise DataError(f"{examples.source} has no examples in the split {split!r}; choose another with --split")
    return examples


def predict(run: Run, examples: Any, beam_size: int, *, progress_bar: ProgressBar = no_progress_bar) -> dict[str, Any]:
    """Return the predictions for all examples of a split, by id."""
    predictions: dict[str, Any] = {}
    with progress_bar(f"predicting {examples.source}") as update:
        for indices in np.array_split(np.arange(len(examples)), -(-len(examples) // CHUNK_SIZE)):
            predictions |= predict_split(run.task, run.model, examples, indices, beam_size=beam_size)
            update(len(predictions), len(examples))
    return predictions
