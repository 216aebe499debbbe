"""What evaluations leave: the file evaluation_SPLIT.json of a run, and the runs of the rows of a paper's table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legenda.compute import SearchOptions
from legenda.errors import ConfigError
from legenda.io import read_json, write_json
from legenda.models.checkpoint import is_run_folder
from legenda.models.weights import read_checksum
from legenda.run_folder import evaluation_file, read_config, weights_path
from legenda.training import is_finished

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


SETTINGS = "table.json"
SUBMISSION_WEIGHTS = "weights.json"
"""The checksums of the weights beside the files for a server."""


@dataclass(frozen=True)
class RowRun:
    """The run of one row and seed, or the runs of an ensemble, and how they are evaluated.

    key: of the row in its table. folders: of the runs; several form an ensemble, whose evaluation is in the first.
    splits: those that are evaluated, each with the suffix that its scores get, such as " on testA". stage: 1 where the
    model is that of the first stage of longer runs. submission: the folder of the files that a server scores, or None.
    """

    key: str
    recipe: str
    task: str
    folders: tuple[Path, ...]
    splits: Mapping[str, str]
    beam_size: int
    metrics: str
    stage: int | None = None
    submission: Path | None = None

    @property
    def name(self) -> str:
        """The folder of the run in that of the tables; of an ensemble, with its number of runs."""
        folder, members = self.folders[0], len(self.folders)
        return f"{folder.parent.name}/{folder.name if members == 1 else f'ensemble{members}'}"

    def uses(self, name: str) -> bool:
        """Return whether a name is its own, or that of one of its runs."""
        return name in (self.name, *(f"{folder.parent.name}/{folder.name}" for folder in self.folders))

    def is_trained(self) -> bool:
        """Return whether all trainings, or their first stages where those are needed, are finished."""
        if self.stage is not None:
            return all(weights_path(folder, self.stage).exists() for folder in self.folders)
        return all(is_finished(folder, self.recipe) for folder in self.folders)

    def is_evaluated(self) -> bool:
        """Return whether the scores, or the files for the server, exist and are of these weights."""
        if self.submission is None:
            return self.scores() is not None
        files = list(self.submission.glob("*_results.json"))
        path = self.submission / SUBMISSION_WEIGHTS
        is_complete = len(files) == (2 if self.task == "captioning" else 1) and path.exists()
        return is_complete and read_json(path, "delete it to evaluate again") == self._weights()

    def scores(self) -> ScoreDict | None:
        """Return the scores in 0..1; None unless all runs are trained, and evaluated as they are now."""
        if not self.is_trained():
            return None
        scores: ScoreDict = {}
        for split, suffix in self.splits.items():
            path = evaluation_path(self.folders[0], split, ensemble=len(self.folders) > 1, stage=self.stage)
            values = read_scores(path, self._settings(split)) if path.exists() else None
            if values is None:
                return None
            scale = 1 if self.task == "captioning" else 100  # other tasks write percentages
            scores |= {name + suffix: None if value is None else value / scale for name, value in values.items()}
        return scores

    def _weights(self) -> list[str]:
        return [read_checksum(weights_path(folder, self.stage)) for folder in self.folders]

    def _settings(self, split: str) -> dict[str, Any]:
        if self.task != "captioning":
            return {"task": self.task, "split": split, "beam_size": self.beam_size, "weights": self._weights()}
        config = read_config(self.folders[0], "delete the folder to train the row again")
        settings = caption_settings(config, split, SearchOptions(beam_size=self.beam_size), self.metrics)
        return {**settings, "weights": self._weights()}


def init_table_dir(folder: Path, settings: Mapping[str, object]) -> None:
    """Create the folder of tables, or check that it holds tables with these settings."""
    path = folder / SETTINGS
    if path.exists():
        if read_json(path, "delete the folder to start again") != settings:
            raise ConfigError(f"{folder} holds tables with other settings; name another folder with --out")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty and holds no tables; name another folder with --out")
    else:
        write_json(path, settings)
