"""The runs of the rows of a paper's table: whether each is trained and evaluated, with which scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from legenda.errors import ConfigError
from legenda.evaluation.results_file import ScoreDict, caption_settings, evaluation_path, read_scores
from legenda.io import read_json, write_json
from legenda.run_files import CONFIG, WEIGHTS
from legenda.search_options import SearchOptions
from legenda.training import is_finished

SETTINGS = "table.json"


@dataclass(frozen=True)
class RowRun:
    """The run of one row and seed, and how it is evaluated.

    key: of the row in its table; name: the key, with the seed where there are several.
    """

    key: str
    name: str
    recipe: str
    folder: Path
    split: str
    beam_size: int
    metrics: str

    def is_trained(self) -> bool:
        """Return whether the training is finished."""
        return is_finished(self.folder, self.recipe)

    def scores(self) -> ScoreDict | None:
        """Return the scores; None unless the run is trained, and evaluated afterwards with these settings."""
        path = evaluation_path(self.folder, self.split)
        if not self.is_trained() or not path.exists():
            return None
        if path.stat().st_mtime < (self.folder / WEIGHTS).stat().st_mtime:
            return None
        config = read_json(self.folder / CONFIG, "delete the folder to train the row again")
        return read_scores(
            path, caption_settings(config, self.split, SearchOptions(beam_size=self.beam_size), self.metrics)
        )


def init_table_dir(folder: Path, settings: Mapping[str, object]) -> None:
    """Create the folder of a table, or check that it holds a table with these settings."""
    path = folder / SETTINGS
    if path.exists():
        if read_json(path, "delete the folder to start again") != settings:
            raise ConfigError(f"{folder} holds a table with other settings; name another folder with --out")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty and holds no table; name another folder with --out")
    else:
        write_json(path, settings)
