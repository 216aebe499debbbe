"""Compare the predictions of two runs or files: scores, paired differences, and where they differ most."""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np

from legenda.config import Config, NonNegativeInt, PositiveInt
from legenda.data.captions import Scorer
from legenda.data.registry import Data, data_settings
from legenda.errors import ConfigError, DataError
from legenda.hub import find_model, is_run_folder
from legenda.io import read_json
from legenda.metrics import Difference, Scores, compare, evaluate
from legenda.metrics.resampling import share_as_large, sign_flips, students_interval
from legenda.metrics.scoring import (
    References,
    ScoringReport,
    as_dicts,
    comparison_table,
    disagreement_table,
    load_references,
    read_single_predictions,
    seed_comparison_table,
)
from legenda.run_folder import CONFIG, RunConfig, evaluation_path, find_seeds, read_config
from legenda.terminal import counted

_LOG = logging.getLogger(__name__)
RANKING_METRIC = "CIDEr-D"
"""The metric of single captions."""


class CompareOptions(Config):
    """Which predictions are compared, and how."""

    first: Path
    """A run folder with evaluation_SPLIT.json, such a file, or a file of captions as legenda score reads it."""
    second: Path
    """The predictions for the same examples to compare with."""
    references: Path | None = None
    """COCO's or Karpathy's annotations or {id: [captions]}; by default those of the runs' data."""
    split: str = "val"
    """The split whose evaluation_SPLIT.json is read from run folders."""
    metrics: Literal["fast", "auto"] = "fast"
    """Metrics of captions. fast: those without Java; auto: METEOR and SPICE too, where their programs are installed."""
    num_examples: NonNegativeInt = 10
    """The number of examples to list, those with the largest differences."""
    resamples: PositiveInt = 1000
    """Number of draws of the bootstrap and of rounds of the randomization."""
    seed: NonNegativeInt = 0
    """Seed of the resampling."""


@dataclass(frozen=True)
class _Scored:
    """Predictions of a file by id, with their scores, and the value of each that ranks them."""

    path: Path
    predictions: Mapping[str, object]
    scores: Scores[str]
    values: Mapping[str, float]


def compare_predictions(options: CompareOptions) -> ScoringReport:
    """Return the scores of both with intervals, their paired differences with p, and the largest disagreements.

    Raise LegendaError for files that cannot be read, without references, or of different examples.
    """
    paths = _predict_missing((options.first, options.second), options.split, _LOG.info)
    contents = [_read_evaluation(path) for path in paths]
    tasks = [content.get("task") for content in contents]
    if tasks[0] != tasks[1]:
        raise ConfigError(f"{paths[0]} and {paths[1]} are of different tasks; compare runs of one task")
    if tasks[0] is None:
        a, b = _score_captions(paths, options.references, options.metrics)
    else:
        a, b = (_score_task(path, content) for path, content in zip(paths, contents, strict=True))
    if different := a.predictions.keys() ^ b.predictions.keys():
        raise DataError(
            f"{a.path} and {b.path} are of different examples: only one has {min(different)}; predict the same ones"
        )
    resampling = {"resamples": options.resamples, "seed": options.seed}
    report = ScoringReport([], dict(resampling), [])
    for name, side in (("first", a), ("second", b)):
        title = f"{name}: {side.path}, {counted(len(side.predictions), 'examples')}"
        report.add_scores(name, title, side.scores, resampling, predictions=str(side.path))
    differences = compare(a.scores, b.scores, **resampling)
    differing = sum(a.predictions[key] != b.predictions[key] for key in a.predictions)
    disagreements = _find_disagreements(a, b, options.num_examples)
    report.results |= {
        "differences": as_dicts(differences),
        "differing": differing,
        "disagreements": [dict(zip(_COLUMNS, row, strict=True)) for row in disagreements],
    }
    ranking = RANKING_METRIC if tasks[0] is None else "the scores of single examples"
    report.tables += [
        "first minus second",
        comparison_table(a.scores, b.scores, differences),
        f"{differing} of {len(a.predictions)} predictions differ; largest differences of {ranking}:",
        disagreement_table(disagreements),
    ]
    return report


def compare_seeds(first: Path, second: Path, *, split: str = "val") -> ScoringReport:
    """Return mean and standard deviation of the scores over seeds, and their paired differences.

    first, second: folders of `legenda train --seeds`, whose runs are evaluated; those of equal seeds are pairs. The
    interval is Student's of the mean difference, and p that of a permutation test which changes the signs of the
    differences, exact for at most 13 pairs. Raise LegendaError where a run is not evaluated, and for fewer than two
    pairs.
    """
    runs = [{run.name: run for run in find_seeds(folder)} for folder in (first, second)]
    seeds = [name for name in runs[0] if name in runs[1]]
    if len(seeds) < 2:
        raise ConfigError(
            f"{first} and {second} have {counted(len(seeds), 'seeds')} in common; train both with at least two"
        )
    a, b = (seed_scores([side[seed] for seed in seeds], split) for side in runs)
    report = ScoringReport([f"{len(seeds)} seeds of {first} and {second}"], {"seeds": seeds}, [])
    differences = compare_pairs(a, b)
    for metric, difference in differences.items():
        report.results[metric] = {"first": a[metric].tolist(), "second": b[metric].tolist(), **vars(difference)}
    report.tables.append(seed_comparison_table([(m, a[m], b[m], difference) for m, difference in differences.items()]))
    return report


def compare_pairs(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> dict[str, Difference]:
    """Return the differences of pairs of runs, at least two, of the metrics that both have; see `compare_seeds`."""
    differences = {}
    for metric in (name for name in first if name in second):
        gaps = first[metric] - second[metric]
        mean, interval = float(gaps.mean()), students_interval(gaps)
        means, exact = sign_flips(gaps, 2**13, np.random.default_rng(0))
        sides = (share_as_large(means, mean, exact=exact), share_as_large(-means, -mean, exact=exact))
        differences[metric] = Difference(mean, interval.low, interval.high, min(1.0, 2 * min(sides)))
    return differences


def seed_scores(runs: Sequence[Path], split: str) -> dict[str, np.ndarray]:
    """Return the scores of evaluated runs by metric, one value a run; metrics that a run lacks are left out."""
    scores = []
    for run in runs:
        content = read_json(find_predictions(run, split), "evaluate the run again")
        if not isinstance(content, dict) or not content.get("scores"):
            raise DataError(f"{run} has no scores of {split}; write them with legenda evaluate {run} --split {split}")
        scores.append(content["scores"])
    names = [name for name in scores[0] if all(isinstance(run_scores.get(name), float | int) for run_scores in scores)]
    return {name: np.array([run_scores[name] for run_scores in scores], float) for name in names}


def score_per_image(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]], score: Scorer | None, *, metrics: str = "fast"
) -> Scores[str]:
    """Return the scores of captions against references, with those of the data set's own `score`."""
    with warnings.catch_warnings(action="ignore"):  # the notices repeat the warnings
        scores = evaluate(captions, {image: references[image] for image in captions}, metrics=metrics)
    if score is None:
        return scores
    per_image = {image: values | score({image: captions[image]}) for image, values in scores.per_image.items()}
    return dataclasses.replace(scores, corpus=scores.corpus | score(captions), per_image=per_image)


def _read_evaluation(path: Path) -> Mapping[str, object]:
    """Return the content of a file of an evaluation, which may name a task and data; of other files, an empty one."""
    try:
        content = read_json(path)
    except DataError:  # a table, for example; what reads captions tells what is wrong with a damaged file
        return {}
    return content if isinstance(content, dict) else {}


_COLUMNS = ("id", "difference", "first_score", "second_score", "first", "second")


def _find_disagreements(a: _Scored, b: _Scored, count: int) -> list[tuple[str, float, float, float, object, object]]:
    """Return the examples with the largest differences, with scores and predictions, in the order of `_COLUMNS`.

    Examples without a difference are left out.
    """
    rows = [
        (key, a.values[key] - b.values[key], a.values[key], b.values[key], a.predictions[key], b.predictions[key])
        for key in a.predictions
    ]
    return sorted((row for row in rows if row[1]), key=lambda row: -abs(row[1]))[:count]


def find_predictions(name: Path, split: str) -> Path:
    """Return the file of predictions: a file as it is, of a run folder the evaluation of the split."""
    path = _predictions_path(name, split)
    if not path.is_file():
        raise DataError(f"{name} has no {path.name}; write it with legenda evaluate {name} --split {split}")
    return path


def _predictions_path(name: Path, split: str) -> Path:
    if name.is_file() or (path := evaluation_path(name, split)).is_file():
        return name if name.is_file() else path
    return evaluation_path(find_model(name), split)


def _predict_missing(names: Sequence[Path], split: str, progress: Callable[[str], None]) -> list[Path]:
    """Return the files of the predictions of two captioners, which caption the split where there is no such file yet.

    A model without data of its own, such as `photo`, captions those of the other; its file is then in the folder of the
    other one, as evaluation_NAME_SPLIT.json. progress: called with a line about each file that is written.
    """
    paths = [_predictions_path(name, split) for name in names]
    if all(path.is_file() for path in paths) or any(name.is_file() for name in names):
        return [find_predictions(name, split) for name in names]
    from legenda.compute import RunOptions
    from legenda.evaluation.evaluate import evaluate_captions
    from legenda.evaluation.runs import CaptionerRun, load_run, resolve_shared_data

    runs = [load_run(name, RunOptions()) for name in names]
    captioners = [run for run in runs if isinstance(run, CaptionerRun)]
    if len(captioners) < len(runs):
        return [find_predictions(name, split) for name in names]
    data = resolve_shared_data(captioners, None, None)
    for position, (name, run, path) in enumerate(zip(names, captioners, paths, strict=True)):
        if path.is_file():
            continue
        if not is_run_folder(name):
            path = captioners[1 - position].folder / f"evaluation_{name.name}_{split}.json"
        progress(f"captioning the split {split} with {name} into {path}")
        evaluate_captions(run, (), data[position], split, {}, path=path)
        paths[position] = path
    return paths


def _score_captions(paths: Sequence[Path], references: Path | None, metrics: str) -> list[_Scored]:
    known, score = read_stored_references(paths) if references is None else (load_references(references), None)
    scored = []
    for path in paths:
        captions = known.rename(path, read_single_predictions(path))
        if missing := [image for image in captions if not known.captions.get(image)]:
            raise DataError(f"there are no references of image {missing[0]}; name some that have with --references")
        scores = score_per_image(captions, known.captions, score, metrics=metrics)
        values = {image: values[RANKING_METRIC] or 0.0 for image, values in scores.per_image.items()}
        scored.append(_Scored(path, captions, scores, values))
    return scored


def _score_task(path: Path, content: Mapping[str, object]) -> _Scored:
    """Return the predictions of a run of another task than captioning, scored on the data of the run."""
    from legenda.tasks.base import TASKS  # late: tasks train models, and import PyTorch
    from legenda.tasks.reporting import ReportedTask

    try:
        task, predictions = TASKS.get(str(content["task"])), content.get("predictions")
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from error
    if not issubclass(task, ReportedTask):
        raise ConfigError(f"{path} has predictions of {task.name}, which has no scores of single examples to compare")
    if not isinstance(predictions, Mapping) or "split" not in content:
        raise DataError(f"{path} is not the file of an evaluation; write it again with legenda evaluate")
    split = _open_data(path, content).split(str(content["split"]))
    result = task.score_with_intervals(predictions, split)
    return _Scored(path, predictions, result.comparable, result.per_example)


def _open_data(path: Path, content: Mapping[str, object]) -> Data:
    """Return the data that an evaluation names, or those of the run whose folder holds it."""
    config = read_config(path.parent) if (path.parent / CONFIG).is_file() else {}
    if "data" in content:
        return data_settings(cast(RunConfig, {**config, "data": content["data"]}), path.parent, path.name)
    return data_settings(config, path.parent)


def read_stored_references(paths: Sequence[Path], option: str = "--references") -> tuple[References, Scorer | None]:
    """Return the references by image in the data that the evaluations name, and the metrics of the data set.

    Raise ConfigError, naming the option that takes references, where no file names its data.
    """
    for path in paths:
        content = _read_evaluation(path)
        if isinstance(content.get("data"), dict) and "split" in content:
            split = _open_data(path, content).split(str(content["split"]))
            captions = {image: list(texts) for image, texts in zip(split.ids, split.references, strict=True)}
            return References(path, captions, {image: image for image in captions}), split.score
    names = " and ".join(map(str, paths[:2]))
    raise ConfigError(f"{names} name no data with references; name the references with {option}")
