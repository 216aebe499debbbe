"""An exported captioner in place of a run, without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self, cast

from legenda.compute import RunOptions
from legenda.config import to_json
from legenda.errors import ConfigError
from legenda.features.extractors import resolve_extractor
from legenda.images.extractor import Extractor
from legenda.run_folder import RunConfig
from legenda.runtime.captioner import OF_RUN, OnnxCaptioner
from legenda.runtime.settings import ChoiceConfig


@dataclass(frozen=True)
class ExportedRun:
    """An exported captioner in place of a run: its folder, and which extractors it takes."""

    folder: Path
    captioner: OnnxCaptioner
    options: RunOptions

    @classmethod
    def load(cls, folder: Path, options: RunOptions) -> Self:
        """Return the captioner of a folder; raise ConfigError for options that only PyTorch's models have."""
        options.check_exported(folder)
        return cls(folder, OnnxCaptioner.load(folder), options)

    @property
    def config(self) -> RunConfig:
        """The part of the run's config.json in export.json: how captions are searched for and chosen."""
        settings = self.captioner.settings
        parts = {name: to_json(getattr(settings, name)) for name in (*OF_RUN, "generation_config")}
        return cast(RunConfig, {**parts, "summary": self.summary})

    @property
    def choice(self) -> ChoiceConfig:
        """How one of several captions is chosen."""
        return self.captioner.settings

    @property
    def summary(self) -> str:
        """One line about the model."""
        return self.captioner.settings.summary or self.captioner.name

    def resolve_extractor(self, name: str | None) -> Extractor:
        """Return the extractor of the model's features; see `legenda.features.extractors.resolve_extractor`."""
        return resolve_extractor(self.captioner.settings.extractor, name, self.folder, self.options)

    def data(self) -> NoReturn:
        """Raise ConfigError; see `without_data`."""
        raise without_data(self.folder)


def without_data(folder: Path) -> ConfigError:
    """Return the error about an exported model where the data of its training are needed."""
    return ConfigError(
        f"{folder} is an exported model and does not name the data of its training; name some with --annotations and "
        "--features, or with their images"
    )
