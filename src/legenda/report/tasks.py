"""The report of tasks other than captioning: each task describes its examples, predictions and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from legenda.errors import ConfigError
from legenda.evaluation.predict import load_examples, predict, reject_captioner_options
from legenda.evaluation.runs import Run
from legenda.report.captions import (
    Scored,
    check_targets,
    common_footnotes,
    common_split,
    count_models,
    describe_page,
    format_scores,
    model_runs,
    report_title,
    select_examples,
)
from legenda.report.images import ReportImage, find_images_by_name, no_verdict
from legenda.report.overlay import blank_canvas
from legenda.report.page import Breakdown, ExampleCard, Report, ScoreColumn, write_report
from legenda.tasks.reporting import EvaluationResult, Example, Prediction, ReportedTask
from legenda.terminal import ProgressBar, no_progress_bar

if TYPE_CHECKING:
    from legenda.cli.report import ReportOptions

_CAPTION_OPTIONS = ("annotations", "features", "overlays", "head")
_CANVAS_SIDE = 384
"""Pixels of the longer side of the canvas that replaces a missing image."""


def write_task_report(
    runs: Mapping[str, Run], options: ReportOptions, *, progress_bar: ProgressBar = no_progress_bar
) -> str:
    """Write the page of runs of one task and return a summary.

    Raise an error where the runs have different tasks or examples, or the split has no references.
    """
    task = _common_task(runs)
    reject_captioner_options(next(iter(runs.values())), options, _CAPTION_OPTIONS)
    splits = {name: load_examples(run, options.split) for name, run in runs.items()}
    remedy = "report runs of the same data together"
    split = common_split(runs, splits, options.split, task.noun, remedy)
    check_targets(split, options.split)
    results: dict[str, EvaluationResult] = {}
    scored: dict[str, Scored] = {}
    for name, run in runs.items():
        predictions = predict(run, splits[name], options.beam_size, progress_bar=progress_bar)
        results[name] = task.score_with_intervals(predictions, splits[name])
        scored[name] = _to_scored(predictions, results[name])
    positions = select_examples(
        [[result.per_example[identity] for identity in split.ids] for result in scored.values()], options.num_images
    )
    predictions_by_run = {
        name: task.describe_predictions(
            run.model,
            splits[name],
            np.array(positions, np.int64),
            scored[name].predictions,
            scored[name].per_example,
        )
        for name, run in runs.items()
    }
    examples = {split.ids[position]: task.describe_example(split, position) for position in positions}
    images = _find_images(next(iter(runs.values())), options, list(examples.values()))
    first = next(iter(results.values()))
    report = Report(
        title=report_title(list(runs)),
        lead=f"{count_models(len(runs))}, {len(split):,} {task.noun} of the split {options.split}. "
        f"{task.card_description}",
        columns=[
            ScoreColumn(name, name, description, percent=first.scores[name].is_fraction)
            for name, description in task.metric_descriptions.items()
        ],
        runs=model_runs(runs, scored),
        examples=[
            _card(identity, example, images, {name: by_id[identity] for name, by_id in predictions_by_run.items()})
            for identity, example in examples.items()
        ],
        footnotes=_footnotes(task, options, len(split), len(examples), images, first, several=len(runs) > 1),
        score_name=task.score_name,
        noun=task.noun,
        verdicts=("correct", "wrong"),
        breakdowns=[
            Breakdown(title, [(_group_key(title, group), group, metric.count) for group, metric in members.items()])
            for title, members in first.groups.items()
        ],
    )
    path = write_report(report, options.out)
    lines = [f"{name}: {format_scores(result, result.scores)}" for name, result in scored.items()]
    return "\n".join([*lines, describe_page(path, len(examples), task.noun)])


def _common_task(runs: Mapping[str, Run]) -> type[ReportedTask]:
    first = next(iter(runs.values()))
    for run in runs.values():
        if run.task is not first.task:
            raise ConfigError(
                f"{first.folder} was trained for {first.task.name} and {run.folder} for {run.task.name}; report runs "
                "of one task together"
            )
    task = first.task
    assert issubclass(task, ReportedTask)
    return task


def _to_scored(predictions: Mapping[str, Any], result: EvaluationResult) -> Scored:
    """Return all scores, those of groups too, by the keys of the report."""
    groups = {
        _group_key(title, name): metric for title, group in result.groups.items() for name, metric in group.items()
    }
    metrics = {**result.scores, **groups}
    return Scored(
        predictions,
        {name: metric.value for name, metric in metrics.items()},
        {name: metric.interval for name, metric in metrics.items()},
        result.per_example,
        result.means,
    )


def _find_images(run: Run, options: ReportOptions, examples: Sequence[Example]) -> dict[str, ReportImage | None]:
    """Return the images of the examples by name; None for one that is not found."""
    names = {example.image for example in examples if example.image is not None}
    if not names:
        return {}
    find = find_images_by_name(run.data(), options.split, names, options.image_folder)
    return {name: find(name) for name in names}


def _card(
    identity: str,
    example: Example,
    images: Mapping[str, ReportImage | None],
    predictions: Mapping[str, Prediction],
) -> ExampleCard:
    """Return one card; boxes in an image that is not found are drawn on a blank canvas."""
    image = None if example.image is None else images[example.image]
    if image is None and example.size is not None:
        image = _blank_image(example.size)
    data, media_type = (None, "") if image is None else image.encoded
    return ExampleCard(identity, example.kind, data, media_type, (), (), predictions, example.facts, example.box)


def _blank_image(size: tuple[float, float]) -> ReportImage:
    width, height = (max(1, round(_CANVAS_SIDE * side / max(size))) for side in size)
    return ReportImage(blank_canvas((), size=(width, height)), "", no_verdict, found=False)


def _group_key(title: str, group: str) -> str:
    return f"{title}: {group}"


def _footnotes(
    task: type[ReportedTask],
    options: ReportOptions,
    count: int,
    shown: int,
    images: Mapping[str, ReportImage | None],
    result: EvaluationResult,
    *,
    several: bool,
) -> list[str]:
    notes = common_footnotes(task.noun, shown, count, several=several)
    notes[1:1] = result.notes
    missing = sum(image is None for image in images.values())
    if missing:
        folder = options.image_folder or "the folders of the data"
        notes.append(f"{missing} images were not found in {folder}; name their folder with --image-folder.")
    return notes
