"""The file evaluation_SPLIT.json of a run: predictions, their scores, and the settings of both."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from legenda.io import read_json, write_json
from legenda.models.location import is_run_folder
from legenda.run_files import evaluation_file
from legenda.search_options import SearchOptions

ScoreDict = dict[str, float | None]
"""Scores by metric, 1 is 100 %; None where a metric has no value."""


def evaluation_path(folder: Path, split: str, *, ensemble: bool = False, stage: int | None = None) -> Path:
    """Return the path of the file; that of an ensemble is in the folder of the first run.

    stage: of the model, where that is not the run's last.
    """
    return folder / evaluation_file(split if stage is None else f"{split}_stage{stage}", ensemble=ensemble)


def choose_path(path: Path, model: Path, out: Path | None) -> Path:
    """Return where the file is written whose path in the folder of a model is `path`.

    model: the name of the model, as `find_model` takes it. out: a file .json or a folder; None for `path` itself or,
    for a packaged model or one of the hub, evaluation_NAME_SPLIT.json in the current folder.
    """
    if out is not None:
        return out if out.suffix == ".json" and not out.is_dir() else out / path.name
    return path if is_run_folder(model) else Path(path.name.replace("_", f"_{model.name}_", 1))


def collapses_repeats(config: Mapping[str, Any]) -> bool:
    """Return whether validation in a run's training dropped repeated words before scoring."""
    stages = config.get("stages") or [{}]
    return bool(stages[-1].get("eval_collapse_repeats"))


def caption_settings(
    config: Mapping[str, Any],
    split: str,
    search: SearchOptions,
    metrics: str,
    data: Mapping[str, Any] | None = None,
    collapse_repeats: bool | None = None,
) -> dict[str, Any]:
    """Return the settings of captions and their scores, except the weights, as the file holds them.

    config: the run's config.json. data: from `describe_data`, where the data are not those of the run.
    collapse_repeats: whether repeated words were dropped; None for what the run's training did.
    """
    return {
        "split": split,
        "beam_size": search.beam_size,
        "search": {name: value for name, value in search.settings().items() if name != "beam_size"},
        "metrics": metrics,
        "generation_config": config["model"].get("generation_config"),
        "data": config.get("data") if data is None else data,
        "collapse_repeats": collapses_repeats(config) if collapse_repeats is None else collapse_repeats,
    }


def read_scores(path: Path, settings: Mapping[str, Any]) -> ScoreDict | None:
    """Return the scores of a file with these settings; None for other settings, and where scoring failed."""
    content = read_json(path, "delete it to evaluate again")
    if not isinstance(content, dict) or any(content.get(name) != value for name, value in settings.items()):
        return None
    return content.get("scores")


def write_evaluation(
    path: Path, settings: Mapping[str, Any], kind: str, predictions: Mapping[str, Any], score: Callable[[], ScoreDict]
) -> ScoreDict:
    """Score the predictions, write settings, scores and, under the name `kind`, predictions; return the scores.

    Where `score` raises, the predictions are written with scores of null.
    """
    scores: ScoreDict | None = None
    try:
        scores = score()
    finally:
        write_json(path, {**settings, "scores": scores, kind: predictions})
    return scores
