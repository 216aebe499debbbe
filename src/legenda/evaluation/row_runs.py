"""The runs of the rows of a paper's table: whether each is trained and evaluated, with which scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legenda.errors import ConfigError
from legenda.evaluation.results_file import ScoreDict, caption_settings, evaluation_path, read_scores
from legenda.io import read_json, write_json
from legenda.run_config import read_config
from legenda.run_files import STAGE_WEIGHTS, WEIGHTS
from legenda.search_options import SearchOptions
from legenda.training import is_finished

SETTINGS = "table.json"


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
            return all(path.exists() for path in self._weights())
        return all(is_finished(folder, self.recipe) for folder in self.folders)

    def is_evaluated(self) -> bool:
        """Return whether the scores, or the files for the server, exist and are newer than the weights."""
        if self.submission is None:
            return self.scores() is not None
        files = list(self.submission.glob("*_results.json"))
        return len(files) == (2 if self.task == "captioning" else 1) and all(map(self._is_new, files))

    def scores(self) -> ScoreDict | None:
        """Return the scores in 0..1; None unless all runs are trained, and evaluated afterwards with these settings."""
        if not self.is_trained():
            return None
        scores: ScoreDict = {}
        for split, suffix in self.splits.items():
            path = evaluation_path(self.folders[0], split, ensemble=len(self.folders) > 1, stage=self.stage)
            if not self._is_new(path):
                return None
            found = read_scores(path, self._settings(split))
            if found is None:
                return None
            scale = 1 if self.task == "captioning" else 100  # other tasks write percentages
            scores |= {name + suffix: None if value is None else value / scale for name, value in found.items()}
        return scores

    def _weights(self) -> list[Path]:
        name = WEIGHTS if self.stage is None else STAGE_WEIGHTS.format(self.stage)
        return [folder / name for folder in self.folders]

    def _is_new(self, path: Path) -> bool:
        """Return whether a file exists that is not older than the weights."""
        return path.exists() and all(path.stat().st_mtime >= file.stat().st_mtime for file in self._weights())

    def _settings(self, split: str) -> dict[str, Any]:
        if self.task != "captioning":
            return {"task": self.task, "split": split, "beam_size": self.beam_size}
        config = read_config(self.folders[0], "delete the folder to train the row again")
        settings = caption_settings(config, split, SearchOptions(beam_size=self.beam_size), self.metrics)
        runs = {"runs": [str(folder) for folder in self.folders]} if len(self.folders) > 1 else {}
        return {**settings, **runs}


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
