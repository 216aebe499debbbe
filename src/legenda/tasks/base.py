"""What a run learns: a task with its data opened, and the objective of each of its stages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from legenda.errors import UserError
from legenda.models.model import Model
from legenda.regions import Regions
from legenda.tasks.config import ObjectiveConfig
from legenda.tasks.rewards import Reward

Batch = dict[str, Tensor]
"""Tensors by their names; the first axis of each counts examples."""


@dataclass(frozen=True, eq=False)
class Loss:
    """The parts of a loss, each a sum, and what there is to tell of the batch beside it."""

    sums: tuple[Float[Tensor, ""], ...]
    told: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A batch ready for the pass with gradients.

    inputs: what `forward` reads beside the batch. counts: what each part of the loss is divided by. finish: makes the
    loss of what `forward` gave.
    """

    inputs: tuple[Tensor | None, ...]
    counts: tuple[float, ...]
    finish: Callable[[Any], Loss]


class Objective(nn.Module):
    """A model with the loss of one stage.

    A batch is what `read` gives of some examples and what `draw` chose for them. `forward` takes and gives tensors
    only, as wrappers for devices need it.
    """

    model: Any
    """A `Model`, of the kind that the task creates."""
    shares: tuple[float, ...] = (1.0,)
    """Weights of the parts of the loss."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def draw(self, positions: np.ndarray, generator: torch.Generator) -> Batch:  # noqa: ARG002
        """What is chosen anew in every epoch for all examples of a step, such as which captions; on the CPU."""
        return {}

    def read(self, positions: np.ndarray) -> Batch:
        """The examples at these positions of the training split, on the CPU, padded to the longest of them."""
        raise NotImplementedError

    @torch.no_grad()
    def prepare(self, positions: np.ndarray, batch: Batch, epoch: int) -> Prepared:
        """What needs no gradient. batch: on the device; epoch: counted from 1 in the stage."""
        raise NotImplementedError

    def forward(self, batch: Batch, *prepared: Tensor | None) -> Any:
        """The one pass through the model that gradients flow back through."""
        raise NotImplementedError


class Split(Protocol):
    """The examples of one split: an identity for each, and what they are read from, for messages."""

    @property
    def ids(self) -> Sequence[str]: ...

    @property
    def source(self) -> str: ...

    def __len__(self) -> int: ...


class Task(ABC):
    """A task with its data opened.

    name: as in config.json. objectives: what its stages may minimise; scheduled sampling is for captions alone.
    extractor: the name under which the features were made; None where there are none.
    """

    name: ClassVar[str]
    objectives: ClassVar[tuple[str, ...]] = ("cross_entropy",)
    train: Split
    validation: Split
    extractor: str | None = None

    @abstractmethod
    def create(self, model: str, options: Mapping[str, Any], start: Path | None = None) -> Model:
        """A new model of that name, as large as the data ask for, with its words.

        start: a model folder whose words it keeps in place of the data's.
        """

    @abstractmethod
    def objective(
        self, model: Any, training: ObjectiveConfig, rewards: Mapping[str, Reward] | None = None
    ) -> Objective:
        """What a stage minimises. rewards: the user's own, by their names."""

    @abstractmethod
    def measured(self) -> Collection[str]:
        """The names of the scores that validation gives."""

    @staticmethod
    @abstractmethod
    def predict(model: Any, split: Any, positions: np.ndarray, *, beam_size: int) -> dict[str, Any]:
        """What the model says of the examples at these positions, by identity, as JSON can hold it."""

    @staticmethod
    @abstractmethod
    def score(predictions: Mapping[str, Any], split: Any) -> dict[str, float | None]:
        """Scores of predictions for a split, or for those of its examples that are predicted."""


def parts_of(regions: Regions) -> Batch:
    """Regions as a part of a batch, by the names of their tensors."""
    parts = {
        "features": regions.features,
        "boxes": regions.boxes,
        "mask": regions.mask,
        "global_feature": regions.global_feature,
    }
    return {name: part for name, part in parts.items() if part is not None}


def regions_of(batch: Batch) -> Regions:
    """The regions of a batch."""
    return Regions(batch["features"], batch.get("boxes"), batch["mask"], batch.get("global_feature"))


def check_stage(task: Task, training: ObjectiveConfig) -> None:
    """UserError where a task has no such stage."""
    captions = "self_critical" in task.objectives
    if training.objective not in task.objectives:
        known = " or ".join(task.objectives)
        raise UserError(f"training.objective={training.objective!r} is for captions; {task.name} takes {known}")
    if training.scheduled_sampling.step and not captions:
        raise UserError(f"training.scheduled_sampling is for captions; leave it out for {task.name}")


def check_boxes(model: Model, has_boxes: bool, source: str) -> None:
    """UserError where a model reads boxes and the features have none."""
    if model.needs_boxes and not has_boxes:
        raise UserError(
            f"{source} holds no boxes, which {model.name} needs for its geometry; extract it again with "
            "boxes or train a model without geometry"
        )
