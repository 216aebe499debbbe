"""The report of captions in files: scores, and examples with references; it needs no model and no PyTorch.

It also holds what reports of runs have in common with it: descriptions of metrics, intervals, the choice of examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from legenda.data.captions import Scorer
from legenda.errors import DataError
from legenda.evaluation.comparison import RANKING_METRIC, read_stored_references, score_per_image
from legenda.images import read_image
from legenda.metrics import METRICS, intervals
from legenda.metrics.evaluation import References
from legenda.metrics.results import EvaluationResult, MetricWithCI, Prediction
from legenda.metrics.scoring import load_references, read_single_predictions
from legenda.report.images import ReportImage, match_photographs
from legenda.report.page import ExampleCard, ModelRun, Report, ScoreColumn, write_report
from legenda.run_folder import shortest_names
from legenda.terminal import counted

SCENE_METRICS = {
    "truth": "share of captions that are true as a whole, over all scenes",
    "pair": "near scenes: names the two that almost touch; about 1 in 12 by chance",
    "axis": "near scenes: the relation of the two, where the caption has one; 1 in 2 by chance",
    "size": "size scenes: which of two equal shapes is larger; 1 in 2 by chance",
    "bind": "bind scenes: the relation of the two things of one color; 1 in 2 by chance",
}
_FIRST, _LEFT_OUT = ("CIDEr-D", "BLEU-1", "BLEU-4", "ROUGE-L"), {"BLEU-2", "BLEU-3"}
"""The metrics of the first columns, and those without one."""


def write_prediction_report(
    paths: Sequence[Path],
    out: Path,
    *,
    annotations: Path | None = None,
    images: Path | None = None,
    num_images: int = 100,
) -> str:
    """Write the page of files of captions and return a summary.

    The references are those of `annotations`, or of the data that an evaluation names; photographs are searched for in
    `images` or beside the annotations, by the ids and names of images. num_images: the images that are shown.
    Raise LegendaError for files that cannot be read, of different images, and without references.
    """
    names = shortest_names([path.resolve() for path in paths])
    if annotations is None:
        stored, score = read_stored_references(paths, "--annotations")
    else:
        stored, score = load_references(annotations), None
    references, files = stored.captions, stored.files
    by_file = {
        name: stored.rename(path, read_single_predictions(path)) for name, path in zip(names, paths, strict=True)
    }
    first = next(iter(by_file.values()))
    for name, captions in by_file.items():
        if different := captions.keys() ^ first.keys():
            raise DataError(f"{names[0]} and {name} are of different images: only one has {min(different)}")
        if missing := [image for image in captions if not references.get(image)]:
            raise DataError(f"there are no references of image {missing[0]} of {name}; name some that have")
    results = {name: score_with_intervals(captions, references, score) for name, captions in by_file.items()}
    ids = list(first)
    shown = select_examples([[result.per_example[image] for image in ids] for result in results.values()], num_images)
    photographs = _find_images({ids[at]: files.get(ids[at], ids[at]) for at in shown}, annotations, images)
    cards = [
        ExampleCard(
            ids[at],
            "",
            None if ids[at] not in photographs else photographs[ids[at]].data_url,
            (),
            references[ids[at]],
            {
                name: Prediction(captions[ids[at]].split(), None, results[name].per_example[ids[at]])
                for name, captions in by_file.items()
            },
        )
        for at in shown
    ]
    notes = ["Intervals: percentile bootstrap over images, 95 %, 1,000 resamples."]
    if len(shown) < len(ids):
        notes.append(f"{len(shown)} of {len(ids):,} images are shown, with the best, the worst and the most different.")
    if missing_images := len(shown) - len(photographs):
        notes.append(f"{not_found(missing_images)}; name their folder with --images.")
    count = "One file" if len(names) == 1 else f"{len(names)} files"
    report = Report(
        title=" against ".join(names),
        lead=f"{count} of captions, {counted(len(ids), 'images', ',')}.",
        columns=score_columns(metric for result in results.values() for metric in result.scores),
        runs=[ModelRun.of(name, "captions in a file", results) for name in results],
        examples=cards,
        footnotes=notes,
        score_name=RANKING_METRIC,
    )
    return summarize(report, results, write_report(report, out))


def _find_images(
    files: Mapping[str, str], annotations: Path | None, image_folder: Path | None
) -> dict[str, ReportImage]:
    """Return the photographs by the ids of their images, without those that have no file; files: file names by id."""
    folder = image_folder
    if folder is None and annotations is not None:
        folder = annotations if annotations.is_dir() else annotations.parent
    if folder is None:
        return {}
    by_name = match_photographs({*files, *files.values()}, [folder])
    if image_folder is not None and files and not by_name:
        raise DataError(f"{folder} holds none of the photographs, such as {min(files.values())}; name their folder")
    paths = {image: by_name.get(image) or by_name.get(file) for image, file in files.items()}
    return {image: ReportImage(read_image(path)) for image, path in paths.items() if path is not None}


def score_with_intervals(captions: Mapping[str, str], references: References, score: Scorer | None) -> EvaluationResult:
    """Return the scores that need no Java and those of the data set, with 95 % bootstrap intervals over images."""
    scores = score_per_image(captions, references, score)
    bounds = {metric: None if i is None else (i.low, i.high) for metric, i in intervals(scores).items()}
    return EvaluationResult(
        {metric: MetricWithCI(value, bounds[metric], len(captions)) for metric, value in scores.corpus.items()},
        {identity: values[RANKING_METRIC] or 0.0 for identity, values in scores.per_image.items()},
        captions=scores,
    )


def score_columns(metrics: Iterable[str]) -> list[ScoreColumn]:
    """Return the columns of the page for those of its metrics that were measured."""
    measured = set(metrics)
    columns = [ScoreColumn(name, name, text, percent=True) for name, text in SCENE_METRICS.items() if name in measured]
    for name in dict.fromkeys((*_FIRST, *METRICS)):
        if name in measured and name not in _LEFT_OUT:
            metric = METRICS.get(name)
            columns.append(ScoreColumn(name, name, metric.description, lower_is_better=metric.lower_is_better))
    return columns


def summarize(report: Report, results: Mapping[str, EvaluationResult], path: Path) -> str:
    """Return the scores of each model or file with their intervals, and where the page is."""
    lines = []
    for name, result in results.items():
        known = {key: metric for key in report.keys if (metric := result.columns.get(key)) and metric.value is not None}
        lines.append(f"{name}: {'  '.join(f'{key} {_format(metric)}' for key, metric in known.items())}")
    size = path.stat().st_size / 1e6
    lines.append(
        f"{path.resolve()}: {counted(len(report.examples), report.noun)}, {size:.1f} MB, which opens in a browser "
        "offline"
    )
    return "\n".join(lines)


def not_found(count: int) -> str:
    """Return the start of a note about a number of images without a file."""
    return f"{counted(count, 'images')} {'was' if count == 1 else 'were'} not found"


def _format(metric: MetricWithCI) -> str:
    assert metric.interval is not None
    return f"{metric.value:.3f} ({metric.interval[0]:.3f} to {metric.interval[1]:.3f})"


def select_examples(scores: Sequence[Sequence[float]], count: int) -> list[int]:
    """Return the sorted positions of `count` examples to show, or of all where there are no more.

    scores: for each run the score of each example. A quarter each have the highest and the lowest mean score and, for
    several runs, the largest difference between runs; the others are evenly spaced among the remaining examples.
    """
    values = np.asarray(scores, dtype=float)
    total = values.shape[1]
    if total <= count:
        return list(range(total))
    mean, difference = values.mean(axis=0), np.ptp(values, axis=0)
    orders = [(-mean).argsort(kind="stable"), mean.argsort(kind="stable")]
    if len(values) > 1:
        orders.append((-difference).argsort(kind="stable"))
    selected: dict[int, None] = {}
    for order in orders:
        candidates = [position for position in order.tolist() if position not in selected]
        selected.update(dict.fromkeys(candidates[: count // 4]))
    rest = [position for position in range(total) if position not in selected]
    missing = count - len(selected)
    selected.update(dict.fromkeys(rest[index * len(rest) // missing] for index in range(missing)))
    return sorted(selected)
