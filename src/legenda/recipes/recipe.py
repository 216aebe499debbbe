"""The configuration of a run as one frozen dataclass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from legenda.errors import ConfigError
from legenda.training.config import TrainingConfig


@runtime_checkable
class Data(Protocol):
    """The settings of a recipe's data: frozen dataclasses of plain fields and paths."""

    def open(self, progress: Callable[[str], None]) -> Any:
        """Return what the recipe's task is created from; `progress` gets lines about the steps of loading."""
        ...

    def split(self, name: str) -> Any:
        """Return one split by its name: train, val or test."""
        ...


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The configuration of a run: a model, its data, its task and its training stages.

    model_overrides: fields of the model's configuration that differ from those of the named model; the size of the
    vocabulary and the width of the features follow from the data. stages: at least one; each later stage starts from
    the best model of the stage before.
    """

    name: str
    summary: str
    model: str
    model_overrides: Mapping[str, Any] = field(default_factory=dict)
    data: Data
    stages: tuple[TrainingConfig, ...]
    task: str = "captioning"
    """The name of the registered task that is created from the opened data."""

    def __post_init__(self) -> None:
        if not self.stages:
            raise ConfigError(f"the recipe {self.name} has no stages; give it one, as in stages=(TrainingConfig(),)")
