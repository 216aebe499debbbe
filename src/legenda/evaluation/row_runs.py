"""The runs of the rows of a paper's table: whether each is trained and evaluated, with which scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legenda.errors import ConfigError
from legenda.evaluation.results_file import ScoreDict, caption_settings, evaluation_path, read_scores
from legenda.io import read_json, write_json
from legenda.run_files import CONFIG, WEIGHTS
from legenda.search_options import SearchOptions
from legenda.training import is_finished

SETTINGS = "table.json"


@dataclass(frozen=True)
class RowRun:
    """The run of one row and seed, or the runs of an ensemble, and how they are evaluated.

    key: of the row in its table. folders: of the runs; several form an ensemble, whose evaluation is in the first.
    splits: those that are evaluated, each with the suffix that its scores get, such as " on testA".
    """

    key: str
    recipe: str
    task: str
    folders: tuple[Path, ...]
    splits: Mapping[str, str]
    beam_size: int
    metrics: str

    @property
    def name(self) -> str:
        """The folder of the run in that of the tables; of an ensemble, with its number of runs."""
        folder, members = self.folders[0], len(self.folders)
        return f"{folder.parent.name}/{folder.name if members == 1 else f'ensemble{members}'}"

    def uses(self, name: str) -> bool:
        """Return whether a name is its own, or that of one of its runs."""
        return name in (self.name, *(f"{folder.parent.name}/{folder.name}" for folder in self.folders))

    def is_trained(self) -> bool:
        """Return whether all trainings are finished."""
        return all(is_finished(folder, self.recipe) for folder in self.folders)

    def scores(self) -> ScoreDict | None:
        """Return the scores in 0..1; None unless all runs are trained, and evaluated afterwards with these settings."""
        if not self.is_trained():
            return None
        scores: ScoreDict = {}
        for split, suffix in self.splits.items():
            path = evaluation_path(self.folders[0], split, ensemble=len(self.folders) > 1)
            if not path.exists() or any(
                path.stat().st_mtime < (folder / WEIGHTS).stat().st_mtime for folder in self.folders
            ):
                return None
            found = read_scores(path, self._settings(split))
            if found is None:
                return None
            scale = 1 if self.task == "captioning" else 100  # other tasks write percentages
            scores |= {name + suffix: None if value is None else value / scale for name, value in found.items()}
        return scores

    def _settings(self, split: str) -> dict[str, Any]:
        if self.task != "captioning":
            return {"task": self.task, "split": split, "beam_size": self.beam_size}
        config = read_json(self.folders[0] / CONFIG, "delete the folder to train the row again")
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
