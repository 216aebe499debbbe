"""Compare the captions of two runs or files: scores, paired differences, and the images on which they differ most."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from legenda.datasets.captions import Scorer
from legenda.errors import ConfigError, DataError
from legenda.evaluation.caption_files import read_predictions, read_references
from legenda.evaluation.results_file import evaluation_path
from legenda.evaluation.runs import data_settings
from legenda.evaluation.score_tables import comparison_table, disagreement_table, score_table
from legenda.evaluation.scoring import ScoringReport, as_dicts
from legenda.io import read_json
from legenda.metrics import Scores, compare, evaluate, intervals
from legenda.metrics.evaluation import References
from legenda.models.location import find_model
from legenda.run_files import CONFIG

RANKING_METRIC = "CIDEr-D"
"""The metric of single captions."""


def compare_captions(
    first: Path,
    second: Path,
    *,
    references: Path | None = None,
    split: str = "val",
    metrics: str = "fast",
    num_images: int = 10,
    resamples: int = 1000,
    seed: int = 0,
) -> ScoringReport:
    """Return the scores of both with intervals, their paired differences with p, and the largest disagreements.

    first, second: run folders, whose evaluation of the split is read, or files of captions. references: a file; None
    for those of the runs' data. Raise LegendaError for files that cannot be read, without references, or of different
    images.
    """
    paths = [_find_captions(name, split) for name in (first, second)]
    captions = [_read_captions(path) for path in paths]
    if different := captions[0].keys() ^ captions[1].keys():
        raise DataError(
            f"{paths[0]} and {paths[1]} are of different images: only one has {min(different)}; caption the same images"
        )
    known, score = _read_references(paths) if references is None else (read_references(references), None)
    if missing := [image for image in captions[0] if not known.get(image)]:
        raise DataError(f"there are no references of image {missing[0]}; name a file that has some with --references")
    scores = a, b = [score_per_image(one, known, score, metrics=metrics) for one in captions]
    resampling = {"resamples": resamples, "seed": seed}
    report = ScoringReport([], dict(resampling), list(scores[0].notices))
    for name, path, one in zip(("first", "second"), paths, scores, strict=True):
        bounds = intervals(one, **resampling)
        report.results[name] = {"predictions": str(path), **one.to_dict(), "intervals": as_dicts(bounds)}
        report.tables += [f"{name}: {path}, {len(one.per_image)} images", score_table(one, bounds)]
    differences = compare(a, b, **resampling)
    differing = sum(captions[0][image] != captions[1][image] for image in captions[0])
    disagreements = _find_disagreements(scores, captions, num_images)
    report.results |= {
        "differences": as_dicts(differences),
        "differing": differing,
        "disagreements": [dict(zip(_COLUMNS, row, strict=True)) for row in disagreements],
    }
    report.tables += ["first minus second", comparison_table(a, b, differences)]
    report.tables.append(f"{differing} of {len(captions[0])} captions differ; largest differences of {RANKING_METRIC}:")
    report.tables.append(disagreement_table(disagreements))
    return report


def score_per_image(
    captions: Mapping[str, str], references: References, score: Scorer | None, *, metrics: str = "fast"
) -> Scores:
    """Return the scores of captions against references, with those of the data set's own `score`."""
    with warnings.catch_warnings(action="ignore"):  # the notices repeat the warnings
        scores = evaluate(captions, {image: references[image] for image in captions}, metrics=metrics)
    if score is None:
        return scores
    per_image = {image: values | score({image: captions[image]}) for image, values in scores.per_image.items()}
    return dataclasses.replace(scores, corpus=scores.corpus | score(captions), per_image=per_image)


_COLUMNS = ("image", "difference", "first_score", "second_score", "first_caption", "second_caption")


def _find_disagreements(
    scores: Sequence[Scores], captions: Sequence[Mapping[str, str]], count: int
) -> list[tuple[str, float, float, float, str, str]]:
    """Return the images with the largest differences, with scores and captions, in the order of `_COLUMNS`.

    Images without a difference are left out.
    """
    rows = []
    for image in captions[0]:
        first, second = (one.per_image[image][RANKING_METRIC] or 0.0 for one in scores)
        rows.append((image, first - second, first, second, captions[0][image], captions[1][image]))
    return sorted((row for row in rows if row[1]), key=lambda row: -abs(row[1]))[:count]


def _find_captions(name: Path, split: str) -> Path:
    """Return the file of captions: a file as it is, of a run folder the evaluation of the split."""
    if name.is_file():
        return name
    path = evaluation_path(find_model(name), split)
    if not path.is_file():
        raise DataError(f"{name} has no {path.name}; write it with legenda evaluate {name} --split {split}")
    return path


def _read_captions(path: Path) -> dict[str, str]:
    content = read_json(path, "name a run folder or a file of captions")
    if isinstance(content, dict) and isinstance(content.get("predictions"), dict):
        raise ConfigError(f"{path} holds predictions of {content.get('task')}; only captions can be compared")
    groups = read_predictions(path)
    if several := [image for image, group in groups.items() if len(group) > 1]:
        raise DataError(f"{path} has several captions for image {several[0]}; only one can be compared")
    return {image: group[0] for image, group in groups.items()}


def _read_references(paths: Sequence[Path]) -> tuple[References, Scorer | None]:
    """Return the references by image in the data that the evaluations name, and the metrics of the data set."""
    for path in paths:
        content = read_json(path)
        if isinstance(content, dict) and isinstance(content.get("data"), dict) and "split" in content:
            config = read_json(path.parent / CONFIG) if (path.parent / CONFIG).is_file() else {}
            split = data_settings({**config, "data": content["data"]}, path.parent).split(content["split"])
            return dict(zip(split.ids, split.references, strict=True)), split.score
    raise ConfigError(f"{paths[0]} and {paths[1]} do not name their data; name the references with --references")
