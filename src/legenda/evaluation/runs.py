"""A run folder opened for use: its model, its configuration, and what its features come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import legenda
from legenda.config import merge, to_json
from legenda.datasets.registry import DATASETS
from legenda.errors import UserError
from legenda.extractors.base import Extractor
from legenda.extractors.registry import is_registered, load_extractor, needs_no_file
from legenda.io import read_json
from legenda.models import Captioner
from legenda.models.checkpoint import CONFIG, load_any
from legenda.models.model import Model
from legenda.recipes.recipe import Data
from legenda.tasks.base import Task
from legenda.tasks.registry import TASKS


@dataclass(frozen=True)
class Run:
    """A trained model of any task with the configuration of its run."""

    folder: Path
    model: Model
    config: Mapping[str, Any]

    @property
    def task(self) -> type[Task]:
        """What it was trained for; captioning where the run does not say."""
        try:
            return TASKS.get(str(self.config.get("task", "captioning")))
        except UserError as error:
            raise UserError(f"{self.folder / CONFIG}: {error}") from error

    @property
    def imported(self) -> bool:
        """Whether its weights came from a released code, so that nothing is known of data and features."""
        return "imported" in self.config

    def data(self) -> Any:
        """The settings of the data it was trained on."""
        if self.imported:
            raise UserError(
                f"{self.folder} was imported and has no data of its own; name some with --annotations and --features, "
                "or give a run that was trained here"
            )
        try:
            described = dict(self.config["data"])
            kind = str(described.pop("kind"))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{self.folder / CONFIG} does not say which data the run used; train it again") from error
        try:
            return merge(DATASETS.get(kind), described, "data")
        except UserError as error:
            raise UserError(f"{self.folder / CONFIG}: {error}") from error


@dataclass(frozen=True)
class CaptionerRun(Run):
    """A trained captioner with the configuration of its run."""

    model: Captioner

    def extractor(self, given: str | None) -> Extractor:
        """The extractor of the run's features: a built-in one, or the `given` file, which must be the same."""
        wanted = str(self.config.get("extractor"))
        if self.imported:
            if given is None:
                raise UserError(
                    f"{self.folder} was imported and reads its release's features; name an extractor of such features, "
                    "as in --extractor my_extractor.py"
                )
            return load_extractor(given)
        if given is None and not needs_no_file(wanted):
            raise UserError(
                f"{self.folder} was trained on features of the extractor {wanted}; name its file, as in "
                f"--extractor {_file_of(wanted)}"
            )
        extractor = load_extractor(given or wanted)
        if extractor.name != wanted:
            raise UserError(
                f"{self.folder} was trained on features of {wanted}, but {given} is {extractor.name}; the same file is "
                "needed, unchanged"
            )
        return extractor


def _file_of(extractor: str) -> str:
    """What a user may have to write to have an extractor again, told by its name."""
    if is_registered(extractor):
        return f"{extractor.partition('@')[0].partition(':')[0]}:FILE"
    return f"{extractor.rsplit('-', 1)[0]}.py"


def load_captioner_run(folder: str | Path) -> CaptionerRun:
    """Loads the run folder of a captioner; UserError names the file that is missing or damaged."""
    folder = Path(folder)
    model = legenda.load(folder)
    return CaptionerRun(folder, model, read_json(folder / CONFIG))


def load_run(folder: str | Path) -> Run:
    """Loads the run folder of a model of any task, as `load_captioner_run` in all else."""
    folder = Path(folder)
    model = load_any(folder)
    config = read_json(folder / CONFIG)
    return CaptionerRun(folder, model, config) if isinstance(model, Captioner) else Run(folder, model, config)


def describe_data(data: Data) -> dict[str, Any]:
    """The "data" part of config.json."""
    return {"kind": DATASETS.name_of(type(data)), **to_json(data)}


def unique_run_names(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the folders by the shortest ends of their paths that differ; raise UserError for a folder given twice."""
    parts = [folder.resolve().parts for folder in folders]
    if len(set(parts)) < len(parts):
        raise UserError("one run folder is named twice; name each once")
    length = next(n for n in range(1, max(map(len, parts)) + 1) if len({p[-n:] for p in parts}) == len(parts))
    return {"/".join(p[-length:]): folder for p, folder in zip(parts, folders, strict=True)}
