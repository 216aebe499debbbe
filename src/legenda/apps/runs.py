"""A run folder opened for use: its model, its configuration, and what its features come from."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import legenda
from legenda.data.caption_sets import DataSettings, KarpathyData, ScenesData
from legenda.data.scenes import extract as extract_scenes
from legenda.errors import UserError
from legenda.files import read_json
from legenda.models import Captioner
from legenda.models.fields import fits
from legenda.models.storage import CONFIG
from legenda.vision.extraction import Extract, Extractor, load_extractor
from legenda.vision.named import is_named, needs_no_file

BUILTIN: Mapping[str, Extract] = {"scenes": extract_scenes}
"""Extractors that need no file of the user's."""

_DATA: dict[str, type] = {"scenes": ScenesData, "karpathy": KarpathyData}


@dataclass(frozen=True)
class OpenRun:
    """A trained model with the configuration of its run."""

    folder: Path
    model: Captioner
    config: Mapping[str, Any]

    @property
    def imported(self) -> bool:
        """Whether its weights came from a released code, so that nothing is known of data and features."""
        return "imported" in self.config

    def data(self) -> DataSettings:
        """The settings of the data it was trained on."""
        if self.imported:
            raise UserError(
                f"{self.folder} was imported and has no data of its own; name some with --annotations and --features"
            )
        try:
            described = dict(self.config["data"])
            kind = _DATA[described.pop("kind")]
            hints = typing.get_type_hints(kind)
            values = {
                name: Path(value) if isinstance(value, str) and hints[name] in (Path, Path | None) else value
                for name, value in described.items()
            }
            if not all(fits(value, hints[name]) for name, value in values.items()):
                raise TypeError("a value does not fit its field")
            return kind(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{self.folder / CONFIG} does not say which data the run used; train it again") from error

    def extractor(self, given: str | None) -> Extractor:
        """The extractor of the run's features: a built-in one, or the `given` file, which must be the same."""
        wanted = str(self.config.get("extractor"))
        if self.imported:
            if given is None:
                raise UserError(
                    f"{self.folder} was imported and reads its release's features; name an extractor of such features, "
                    "as in --with my_extractor.py"
                )
            return load_extractor(given, builtin=BUILTIN)
        if given is None and wanted not in BUILTIN and not needs_no_file(wanted):
            raise UserError(
                f"{self.folder} was trained on features of the extractor {wanted}; name its file, as in "
                f"--with {_file_of(wanted)}"
            )
        extractor = load_extractor(given or wanted, builtin=BUILTIN)
        if extractor.name != wanted:
            raise UserError(
                f"{self.folder} was trained on features of {wanted}, but {given} is {extractor.name}; the same file is "
                "needed, unchanged"
            )
        return extractor


def _file_of(extractor: str) -> str:
    """What a user may have to write to have an extractor again, told by its name."""
    if is_named(extractor):
        return f"{extractor.partition('@')[0].partition(':')[0]}:FILE"
    return f"{extractor.rsplit('-', 1)[0]}.py"


def open_run(folder: str | Path) -> OpenRun:
    """Loads a run folder; UserError names the file that is missing or damaged."""
    folder = Path(folder)
    model = legenda.load(folder)
    return OpenRun(folder, model, read_json(folder / CONFIG))


def describe_data(data: DataSettings) -> dict[str, Any]:
    """The "data" part of config.json."""
    kinds = {kind: name for name, kind in _DATA.items()}
    assert dataclasses.is_dataclass(data)
    return {
        "kind": kinds[type(data)],
        **{k: str(v.resolve()) if isinstance(v, Path) else v for k, v in vars(data).items()},
    }
