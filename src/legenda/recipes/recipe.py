"""A recipe: everything a training run is, as one typed value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from legenda.tasks.base import Task
from legenda.tasks.captioning import Captioning
from legenda.training.config import TrainingConfig


class Data(Protocol):
    """What a recipe says of its data: frozen dataclasses of plain fields and paths."""

    def open(self, progress: Callable[[str], None]) -> Any:
        """What the recipe's task is made of; `progress` hears what is being done."""
        ...

    def split(self, name: str) -> Any:
        """One split by its name: train, val or test."""
        ...


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A model with its options, the data it learns from and how it is trained.

    options: fields of the model's configuration that differ from its defaults; the size of the vocabulary and the
    width of the features follow from the data.
    training, fine_tuning: its stages; the second, where there is one, begins with the best model of the first.
    """

    name: str
    summary: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: Data
    training: TrainingConfig
    fine_tuning: TrainingConfig | None = None
    task: Callable[[Any], Task] = Captioning
    """What is made of the opened data: a class of tasks."""
