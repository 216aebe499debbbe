"""Evaluate a split: predict, score, and write predictions and scores to the run folder."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from legenda.compute import SearchOptions
from legenda.data.captions import CaptionDataset
from legenda.errors import ConfigError, LegendaError
from legenda.evaluation.predict import generate, load_examples, predict
from legenda.evaluation.results import (
    SUBMISSION_WEIGHTS,
    ScoreDict,
    caption_settings,
    evaluation_path,
    write_evaluation,
)
from legenda.evaluation.runs import CaptionerRun, Run, check_extractor, describe_data, replace_features
from legenda.evaluation.submission import coco_splits, write_answers, write_submission
from legenda.io import write_json
from legenda.metrics import evaluate
from legenda.recipes import Data
from legenda.tasks.captioning import collapse_repeats as collapse
from legenda.tasks.captioning import score_captions
from legenda.terminal import ProgressBar, no_progress_bar

Metrics = Literal["fast", "auto"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """The scores of a split, its number of examples, and the file with predictions and scores.

    missing_targets: what the split lacks, such as "captions", so that it has no scores; None where it is complete.
    """

    path: Path
    examples: int
    scores: ScoreDict
    missing_targets: str | None

    def format_scores(self, split: str) -> str:
        """Return the scores as lines of text, or the remark that there are none."""
        if self.missing_targets is not None:
            return f"the split {split} has no {self.missing_targets}, so nothing is scored"
        return "\n".join(
            f"{name:<8} {'none' if value is None else f'{value:.4f}'}" for name, value in self.scores.items()
        )


def evaluate_captions(
    run: CaptionerRun,
    members: Sequence[CaptionerRun],
    data: Data,
    split: str,
    search: SearchOptions,
    metrics: Metrics = "fast",
    progress_bar: ProgressBar = no_progress_bar,
    *,
    collapse_repeats: bool | None = None,
    path: Path | None = None,
) -> Evaluation:
    """Caption a split, score the captions, and write both to `path`, or to evaluation_SPLIT.json in the run folder.

    members: further runs that caption together with `run`. data: those of the run, or others, which the file then
    holds. metrics: "auto" adds METEOR and SPICE where their programs are installed. Without reference captions nothing
    is scored. collapse_repeats: whether words that follow themselves are dropped; None for what the training did.
    """
    path = path or evaluation_path(run.folder, split, ensemble=bool(members), stage=run.stage)
    dataset = data.split(split)
    settings = caption_settings(
        run.config, split, search, metrics, _describe_other(run, data, path.parent), collapse_repeats
    )
    captions = generate(run, dataset, search, members, progress_bar=progress_bar)
    settings = {"images": len(dataset), **settings, "weights": [member.weights for member in (run, *members)]}
    if settings["collapse_repeats"]:
        captions = collapse(captions)
    if members:
        settings["runs"] = [str(member.folder) for member in (run, *members)]
    scores = write_evaluation(path, settings, "captions", captions, lambda: _score(captions, dataset, metrics))
    return Evaluation(path, len(dataset), scores, dataset.missing_targets)


def evaluate_task(
    run: Run,
    split: str,
    beam_size: int,
    progress_bar: ProgressBar = no_progress_bar,
    *,
    submission_dir: Path | None = None,
    algorithm: str | None = None,
    features: Path | None = None,
    path: Path | None = None,
) -> Evaluation:
    """Predict a split with a model of any task, score the predictions, and write both as `evaluate_captions` does.

    features: a store of the split's images, in place of those of the training.
    submission_dir: a folder that also gets EvalAI's result file, for questions; algorithm: the name in its file name.
    """
    if submission_dir is not None and run.task.name != "vqa":
        raise ConfigError(
            f"--submission-dir is for captioners and questions, but {run.folder} was trained for {run.task.name}; "
            "leave it out"
        )
    task, examples = run.task, load_examples(run, split, features)
    predictions = predict(run, examples, beam_size, progress_bar=progress_bar)
    path = path or evaluation_path(run.folder, split, stage=run.stage)
    settings: dict[str, Any] = {"task": task.name, "split": split, "examples": len(predictions), "beam_size": beam_size}
    settings["weights"] = [run.weights]
    if path.parent != run.folder or features is not None:
        settings["data"] = describe_data(replace_features(run.data(), features), path.parent)
    missing_targets = getattr(examples, "missing_targets", None)
    scores = write_evaluation(
        path, settings, "predictions", predictions, lambda: {} if missing_targets else task.score(predictions, examples)
    )
    if submission_dir is not None:
        path = write_answers(submission_dir, algorithm or run.folder.resolve().name, split, predictions)
        write_json(submission_dir / SUBMISSION_WEIGHTS, settings["weights"])
    return Evaluation(path, len(predictions), scores, missing_targets)


def caption_coco_server(
    run: CaptionerRun,
    members: Sequence[CaptionerRun],
    folder: Path,
    test_features: Path | None,
    algorithm: str | None,
    search: SearchOptions,
    progress_bar: ProgressBar = no_progress_bar,
) -> Mapping[Path, int]:
    """Write the two files of COCO's captioning server to `folder`; return their paths with the numbers of images.

    A third file holds the checksums of the weights. algorithm: the name in the file names; None for that of the run
    folder.
    """
    splits = coco_splits(run, test_features)
    for split in splits.values():
        check_extractor(run, split)
    captions = {
        part: generate(run, split, search, members, progress_bar=progress_bar) for part, split in splits.items()
    }
    paths = write_submission(folder, algorithm or run.folder.resolve().name, captions)
    write_json(folder / SUBMISSION_WEIGHTS, [member.weights for member in (run, *members)])
    return dict(zip(paths, map(len, captions.values()), strict=True))


def _describe_other(run: Run, data: Data, folder: Path) -> dict[str, Any] | None:
    """Return the description of the data for a file in `folder`; None for those in config.json next to the file."""
    try:
        if folder == run.folder and data == run.data():
            return None
    except LegendaError:
        pass
    return describe_data(data, folder)


def _score(captions: dict[str, str], split: CaptionDataset, metrics: Metrics) -> ScoreDict:
    if split.missing_targets is not None:
        return {}
    scores = score_captions(captions, split)
    if metrics == "auto":
        references = dict(zip(split.ids, split.references, strict=True))
        with warnings.catch_warnings(action="ignore"):  # the notices repeat the warnings
            result = evaluate(captions, references, metrics="auto")
        scores |= result.corpus
        for notice in result.notices:
            _LOG.warning(notice)
    return scores
