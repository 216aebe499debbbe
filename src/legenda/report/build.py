"""Parts that every report has: scores with intervals, runs with their curves, examples with their captions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from legenda.data.captions import CaptionDataset
from legenda.errors import DataError
from legenda.evaluation.comparison import RANKING_METRIC, score_per_image
from legenda.evaluation.runs import CaptionerRun, Run
from legenda.metrics import Difference, Scores, compare, intervals
from legenda.models import describe_model
from legenda.pipeline import GeneratedCaption
from legenda.report import ExampleCard, ModelRun
from legenda.report.caption_attention import (
    draw_caption_attention,
    predict_with_attention,
    write_sheet,
)
from legenda.report.encode_attention import encoded_size
from legenda.report.images import ReportImage
from legenda.report.overlay import average_heads
from legenda.run_files import HISTORY
from legenda.tasks.reporting import Prediction
from legenda.tasks.sample_health import CURVES
from legenda.terminal import ProgressBar, no_progress_bar
from legenda.training.history import read_history

_MAX_ATTENTION_CHARACTERS = 45_000
"""Characters of the page that the attention of an image may take, on average over the images."""


@dataclass(frozen=True)
class Scored:
    """Predictions of a split by one run, by id, with scores by the keys of the report's columns, some with intervals.

    per_example: the score of each prediction, the CIDEr-D of a caption, by id. result: all scores of captions.
    """

    predictions: Mapping[str, Any]
    scores: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]]
    per_example: Mapping[str, float]
    result: Scores | None = None


def common_split(runs: Mapping[str, Run], splits: Mapping[str, Any], name: str, noun: str, remedy: str) -> Any:
    """Return the split of the first run; raise DataError unless all have the same examples."""
    first, split = next(iter(splits.items()))
    for run, other in splits.items():
        if other.ids != split.ids:
            raise DataError(f"{runs[run].folder} has other {noun} in {name} than {runs[first].folder}; {remedy}")
    return split


def check_targets(split: Any, name: str) -> None:
    """Raise DataError where a split has no references."""
    missing = getattr(split, "missing_targets", None)
    if missing is not None:
        raise DataError(f"the data set has no {missing} of {name}, so nothing can be scored; choose another --split")


def predict_and_score(
    runs: Mapping[str, CaptionerRun],
    splits: Mapping[str, CaptionDataset],
    beam_size: int,
    *,
    progress_bar: ProgressBar = no_progress_bar,
) -> tuple[dict[str, dict[str, GeneratedCaption]], dict[str, Scored]]:
    """Return the captions of each run by id, from one beam search for each image, and their scores."""
    captions = {
        name: predict_with_attention(run, splits[name], beam_size, progress_bar=progress_bar)
        for name, run in runs.items()
    }
    texts = {name: {key: caption.text for key, caption in by_id.items()} for name, by_id in captions.items()}
    return captions, {name: score_with_intervals(texts[name], splits[name]) for name in runs}


def common_footnotes(noun: str, shown: int, count: int, *, several: bool = False) -> list[str]:
    """Return the notes on intervals, on differences of `several` runs, and on the choice of examples."""
    notes = [
        f"Intervals: percentile bootstrap over {noun}, 95 %, 1,000 resamples; they do not cover the variation between "
        "training seeds."
    ]
    if several:
        notes.append(
            "Differences: intervals by paired bootstrap, p by approximate randomization with 1,000 rounds; p is not "
            "corrected for several metrics or models."
        )
    if shown < count:
        notes.append(
            f"{shown} of {count:,} {noun} are shown: a quarter each have the highest and the lowest scores and, for "
            "several models, the largest differences between models; the others are evenly spaced."
        )
    return notes


def score_with_intervals(captions: Mapping[str, str], split: CaptionDataset) -> Scored:
    """Return the metrics that need no Java and those of the data set, with 95 % bootstrap intervals over images."""
    scores = score_per_image(captions, dict(zip(split.ids, split.references, strict=True)), split.score)
    return Scored(
        captions,
        scores.corpus,
        {name: (found.low, found.high) for name, found in intervals(scores).items() if found is not None},
        {identity: values[RANKING_METRIC] or 0.0 for identity, values in scores.per_image.items()},
        scores,
    )


def compare_to_first(scored: Mapping[str, Scored], name: str) -> dict[str, Difference]:
    """Return the differences of a run from the first one by metric; none for the first one and without `result`."""
    first, other = next(iter(scored.values())), scored[name]
    if first is other or first.result is None or other.result is None:
        return {}
    return {metric: found for metric, found in compare(other.result, first.result).items() if found is not None}


def report_title(names: Sequence[str]) -> str:
    """Return the title of a page that compares runs of these names."""
    return " against ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def count_models(count: int) -> str:
    """Return "One model" or "3 models"."""
    return "One model" if count == 1 else f"{count} models"


def format_scores(scored: Scored, names: Collection[str]) -> str:
    """Return the named scores that the run has, each with its interval, on one line."""
    return "  ".join(
        f"{name} {value:.3f} ({scored.intervals[name][0]:.3f} to {scored.intervals[name][1]:.3f})"
        for name in names
        if (value := scored.scores.get(name)) is not None
    )


def describe_page(path: Path, count: int, noun: str) -> str:
    """Return the line that names the written page and its size."""
    size = path.stat().st_size / 1e6
    return f"{path.resolve()}: {count} {noun}, {size:.1f} MB, one file that opens in a browser offline"


def model_runs(
    runs: Mapping[str, Run],
    scored: Mapping[str, Scored],
    *,
    curve_metrics: Sequence[str],
    validation_noun: str,
    loss_title: str = "training loss (nats per token)",
    descriptions: Mapping[str, str] | None = None,
) -> list[ModelRun]:
    """Return the runs with their curves: training loss, reward, health of samples, validation scores named in
    `curve_metrics`.

    validation_noun: what the validation examples are called in titles. descriptions: by default the model's summary
    and the recipe that trained it. A run without history, such as an imported one, has no curves.
    """
    found = []
    for name, run in runs.items():
        history = read_history(run.folder) if (run.folder / HISTORY).exists() else []
        curves: dict[str, list[tuple[float, float]]] = {}
        for key, title in {"loss": loss_title, "reward": "reward of samples", **CURVES}.items():
            curves[title] = [(record["step"], record[key]) for record in history if key in record]
        for key in curve_metrics:
            values = [(record["step"], record["validation"].get(key)) for record in history if "validation" in record]
            curves[f"{key} on {validation_noun}"] = [(step, value) for step, value in values if value is not None]
        found.append(
            ModelRun(
                name=name,
                description=_describe_run(run) if descriptions is None else descriptions[name],
                parameters=run.model.parameter_count,
                seconds=max((record.get("seconds", 0.0) for record in history), default=None),
                scores=scored[name].scores,
                curves={title: points for title, points in curves.items() if points},
                configuration=run.config,
                intervals=scored[name].intervals,
                differences=compare_to_first(scored, name),
            )
        )
    return found


def _describe_run(run: Run) -> str:
    recipe = run.config.get("recipe")
    summary = describe_model(run.model.name).summary
    origin = f"recipe {recipe}" if recipe else "imported" if run.imported else "no recipe"
    return f"{run.model.name}: {summary} ({origin})"


def caption_card(
    identity: str,
    image: ReportImage,
    references: Sequence[str],
    captions: Mapping[str, GeneratedCaption],
    scored: Mapping[str, Scored],
    *,
    with_heads: bool = True,
) -> ExampleCard:
    """Return one image with the captions of all runs; runs with other regions than the first have separate boxes.

    scored: that of each run that has scores. with_heads: whether to keep each attention head, or only their mean.
    """
    boxes = next(iter(captions.values())).boxes
    data, media_type = image.encoded
    views = {}
    for name, caption in captions.items():
        verdict, reason = image.check_caption(caption.text)
        views[name] = Prediction(
            caption.words,
            verdict,
            scored[name].per_example[identity] if name in scored else None,
            reason,
            attention=caption.heads if with_heads and caption.has_boxes else caption.attention,
            boxes=None if np.array_equal(caption.boxes, boxes) else caption.boxes.tolist(),
        )
    return ExampleCard(identity, image.kind, data, media_type, boxes.tolist(), references, views)


def heads_fit_page_budget(images: Collection[Mapping[str, GeneratedCaption]]) -> bool:
    """Return whether the page may hold every attention head: 100 photographs with them stay below 20 MB."""
    captions = [caption for by_run in images for caption in by_run.values()]
    characters = sum(encoded_size(caption.heads) + 7 * average_heads(caption.heads).size for caption in captions)
    return characters <= _MAX_ATTENTION_CHARACTERS * len(images)


def write_overlays(
    folder: Path, images: Mapping[str, tuple[ReportImage, Mapping[str, GeneratedCaption]]], head: int | None
) -> int:
    """Write a sheet for each image, by id, and run that has attention, and return their number."""
    count = 0
    for identity, (image, captions) in images.items():
        for name, caption in captions.items():
            if not caption.has_boxes or not caption.words:
                continue
            sheet = draw_caption_attention(image.image, [caption], title=f"{identity}, {name}", head=head)
            write_sheet(sheet, folder, f"{identity}.{name}")
            count += 1
    return count
