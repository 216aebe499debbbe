"""The part of `legenda evaluate` for the tasks that are not captioning."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from legenda.errors import UserError
from legenda.evaluation.progress import ProgressBar, no_progress_bar
from legenda.evaluation.results_file import evaluation_path, format_scores, write_evaluation
from legenda.tasks.base import predict_split

if TYPE_CHECKING:
    from legenda.evaluation.runs import Run

_AT_ONCE = 200
"""Examples between two movements of the bar."""


def evaluate_task(opened: Run, split: str, beam_size: int, *, progress_bar: ProgressBar = no_progress_bar) -> None:
    """Predict a split, print its scores, and write both to evaluation_SPLIT.json in the run folder.

    Without reference answers, the predictions are written and not scored.
    """
    task = opened.task
    examples = load_examples(opened, split)
    predictions = predict(opened, examples, beam_size, progress_bar=progress_bar)
    path = evaluation_path(opened.folder, split)
    settings = {"task": task.name, "split": split, "examples": len(predictions), "beam_size": beam_size}
    missing_targets = getattr(examples, "missing_targets", None)
    scores = write_evaluation(
        path, settings, "predictions", predictions, lambda: {} if missing_targets else task.score(predictions, examples)
    )
    print(format_scores(scores, split, missing_targets))
    print(f"{len(predictions)} examples of {split}; predictions in {path}")


def reject_captioner_options(opened: Run, options: Any, names: Iterable[str]) -> None:
    """UserError for one of the named options, a dataclass's, that was given though only captioners have it."""
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    for name in names:
        if getattr(options, name) != defaults[name]:
            option = name.replace("_", "-")
            raise UserError(
                f"--{option} is for captioners, and {opened.folder} was trained for {opened.task.name}; leave it out"
            )


def load_examples(opened: Run, split: str) -> Any:
    """A split of the run's own data; UserError where there is none, or its features are not those of the training."""
    if opened.imported:
        raise UserError(f"{opened.folder} was imported and has no data of its own; give a run that was trained here")
    examples: Any = opened.data().split(split)
    made, wanted = getattr(examples, "extractor", None), opened.config.get("extractor")
    if made != wanted:
        raise UserError(
            f"{examples.source} was made by the extractor {made}, but {opened.folder} was trained on features of "
            f"{wanted}; put the features of that extractor in their place"
        )
    if not len(examples):
        raise UserError(f"{examples.source} has no examples in the split {split!r}; choose another with --split")
    return examples


def predict(
    opened: Run, examples: Any, beam_size: int, *, progress_bar: ProgressBar = no_progress_bar
) -> dict[str, Any]:
    """Return the predictions for all examples of a split, by id."""
    predictions: dict[str, Any] = {}
    with progress_bar(f"predicting {examples.source}") as update:
        for part in np.array_split(np.arange(len(examples)), -(-len(examples) // _AT_ONCE)):
            predictions |= predict_split(opened.task, opened.model, examples, part, beam_size=beam_size)
            update(len(predictions), len(examples))
    return predictions
