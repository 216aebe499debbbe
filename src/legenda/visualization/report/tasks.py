"""The part of `legenda report` for the tasks that are not captioning: each tells its own examples and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from legenda.cli.report import choose
from legenda.errors import UserError
from legenda.evaluation.tasks import load_examples, predict, reject_captioner_options
from legenda.tasks.reporting import EvaluationResult, Example, MetricWithCI, Prediction, ReportedTask
from legenda.visualization.overlay import blank_canvas
from legenda.visualization.report import Breakdown, CaptionView, ExampleCard, Report, ScoreColumn, write_report
from legenda.visualization.report.build import describe_run, model_run, title_of
from legenda.visualization.report.images import Subject, find_by_name

if TYPE_CHECKING:
    from legenda.cli.report import Options
    from legenda.evaluation.runs import Run

_FOR_CAPTIONERS = ("annotations", "features", "overlays", "head")
_CANVAS = 384
"""Pixels of the longer side where a picture is not found."""


@dataclass(frozen=True)
class _Tested:
    """What a model said of a split, and how good that is."""

    predictions: Mapping[str, Any]
    judged: EvaluationResult

    @property
    def scores(self) -> dict[str, float]:
        return {name: score.value for name, score in _keyed(self.judged).items()}

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        return {name: score.interval for name, score in _keyed(self.judged).items()}


def write_task_report(runs: Mapping[str, Run], options: Options) -> None:
    """Writes the page of runs of one task and says what it holds; UserError where they cannot be compared."""
    task = _task_of(runs)
    reject_captioner_options(next(iter(runs.values())), options, _FOR_CAPTIONERS)
    splits = {name: load_examples(opened, options.split) for name, opened in runs.items()}
    split = next(iter(splits.values()))
    missing_targets = getattr(split, "missing_targets", None)
    if missing_targets is not None:
        raise UserError(
            f"the split {options.split} has no {missing_targets}, so nothing can be scored; choose another split"
        )
    for name, other in splits.items():
        if other.ids != split.ids:
            raise UserError(
                f"{runs[name].folder} has other {task.noun} in {options.split} than {options.runs[0]}; report runs of "
                "the same data together"
            )
    tested: dict[str, _Tested] = {}
    for name, opened in runs.items():
        predictions = predict(opened, splits[name], options.beam_size)
        tested[name] = _Tested(predictions, task.score_with_intervals(predictions, splits[name]))
    ranks = [[result.judged.per_example[identity] for identity in split.ids] for result in tested.values()]
    positions = choose(ranks, options.num_images)
    said = {
        name: task.describe_predictions(
            opened.model,
            splits[name],
            np.array(positions, np.int64),
            tested[name].predictions,
            tested[name].judged.per_example,
        )
        for name, opened in runs.items()
    }
    shown = {split.ids[position]: task.describe_example(split, position) for position in positions}
    pictures = _pictures(next(iter(runs.values())), options, list(shown.values()))
    first = next(iter(tested.values())).judged
    kinds = {example.kind for example in shown.values()} - {""}
    report = Report(
        title=title_of(list(runs)),
        lead=f"{_count(runs)}, {len(split):,} {task.noun} of the split {options.split}. {task.card_description}",
        columns=[
            ScoreColumn(name, name, explanation, percent=first.scores[name].is_fraction)
            for name, explanation in task.metric_descriptions.items()
        ],
        runs=[
            model_run(
                opened,
                name,
                describe_run(opened),
                tested[name],
                validated=[*task.metric_descriptions, *sorted(kinds)],
                where=f"validation {task.noun}",
                loss=task.loss_title,
            )
            for name, opened in runs.items()
        ],
        examples=[
            _example(identity, example, pictures, {name: views[identity] for name, views in said.items()})
            for identity, example in shown.items()
        ],
        footnotes=_footnotes(task, options, len(split), list(shown.values()), pictures, first),
        score_name=task.score_name,
        noun=task.noun,
        verdicts=("right", "wrong"),
        breakdowns=[
            Breakdown(title, [(_key(title, group), group, score.count) for group, score in groups.items()])
            for title, groups in first.groups.items()
        ],
    )
    path = write_report(report, options.out)
    for name, result in tested.items():
        print(f"{name}: {_told(result.judged)}")
    size = path.stat().st_size / 1e6
    print(f"{path.resolve()}: {len(shown)} {task.noun}, {size:.1f} MB, one file that opens in a browser offline")


def _task_of(runs: Mapping[str, Run]) -> type[ReportedTask]:
    first = next(iter(runs.values()))
    other = next((opened for opened in runs.values() if opened.task is not first.task), None)
    if other is not None:
        raise UserError(
            f"{first.folder} was trained for {first.task.name} and {other.folder} for {other.task.name}; report runs "
            "of one task together"
        )
    task = first.task
    assert issubclass(task, ReportedTask)
    return task


def _pictures(opened: Run, options: Options, shown: Sequence[Example]) -> dict[str, Subject | None]:
    """The pictures of the examples by their names; None of one that is not found."""
    images = {example.image for example in shown if example.image is not None}
    found = find_by_name(opened.data(), options.split, images, options.image_folder) if images else None
    return {image: found(image) for image in images} if found is not None else {}


def _example(
    identity: str, shown: Example, pictures: Mapping[str, Subject | None], said: Mapping[str, Prediction]
) -> ExampleCard:
    """One card; where the picture is not found and places in it are compared, they stand on a blank canvas."""
    subject = None if shown.image is None else pictures[shown.image]
    if subject is None and shown.size is not None:
        subject = _blank(shown.size)
    picture, media_type = (None, "") if subject is None else subject.encoded
    views = {
        name: CaptionView(view.words, None, view.correct, view.note, view.score, box=view.box)
        for name, view in said.items()
    }
    return ExampleCard(identity, shown.kind, picture, media_type, (), (), views, shown.facts, shown.box)


def _blank(size: tuple[float, float]) -> Subject:
    width, height = (max(1, round(_CANVAS * side / max(size))) for side in size)
    return Subject(blank_canvas((), size=(width, height)), "", lambda _: (None, ""), found=False)


def _key(title: str, group: str) -> str:
    """Under which a run has its score of a group, which no score of all examples is called."""
    return f"{title}: {group}"


def _keyed(judged: EvaluationResult) -> dict[str, MetricWithCI]:
    """All scores, those of groups too, under the keys of the report."""
    groups = {_key(title, group): score for title, parts in judged.groups.items() for group, score in parts.items()}
    return {**judged.scores, **groups}


def _count(runs: Mapping[str, Run]) -> str:
    return "One model" if len(runs) == 1 else f"{len(runs)} models"


def _footnotes(
    task: type[ReportedTask],
    options: Options,
    count: int,
    shown: Sequence[Example],
    pictures: Mapping[str, Subject | None],
    judged: EvaluationResult,
) -> list[str]:
    """What the reader must know to read the page rightly."""
    notes = [
        f"The intervals are those of a bootstrap over {task.noun}, 95 %, 1,000 draws; they say nothing of other seeds "
        "of training.",
        *judged.notes,
    ]
    if len(shown) < count:
        notes.append(
            f"{len(shown)} of {count:,} {task.noun} are shown: a quarter each those of the best and of the worst "
            "predictions and, of several models, those on which they differ most; the others are spread evenly."
        )
    missing = sum(subject is None for subject in pictures.values())
    if missing:
        where = options.image_folder or "the folders of the data"
        notes.append(f"{missing} pictures were not found in {where}; --image-folder names another one.")
    return notes


def _told(judged: EvaluationResult) -> str:
    scores = _keyed(judged)
    return "  ".join(
        f"{name} {score.value:.3f} ({score.interval[0]:.3f} to {score.interval[1]:.3f})"
        for name, score in scores.items()
    )
