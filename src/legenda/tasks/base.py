"""The interface of a task: its data, its models, and the objective of each training stage."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from legenda.errors import ConfigError, DataError
from legenda.models.base import Model, eval_mode
from legenda.models.freeze import packed_linear
from legenda.models.registry import build_model, describe_model, list_models
from legenda.regions import Regions
from legenda.registry import Registry
from legenda.tasks.config import ObjectiveConfig
from legenda.text import Vocabulary

Batch = dict[str, Tensor]
"""Tensors by name; the first axis of each counts examples."""


@dataclass(frozen=True, eq=False)
class Loss:
    """The terms of a loss, each summed over its tokens or examples, and further metrics of the batch."""

    sums: tuple[Float[Tensor, ""], ...]
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """A batch ready for the forward pass with gradients.

    inputs: arguments of `Objective.forward` besides the batch. normalizers: what each term of the loss is divided by.
    finish: returns the loss, given the output of `forward`.
    """

    inputs: tuple[Tensor | None, ...]
    normalizers: tuple[float, ...]
    finish: Callable[[Any], Loss]


class Objective(nn.Module):
    """A model with the loss of one training stage.

    A batch holds what `read` returns for some examples and what `sample_targets` chose for them. `forward` takes and
    returns tensors only, as DDP and FSDP require.
    """

    model: Any
    """A `Model` of the kind that the task creates."""
    loss_weights: tuple[float, ...] = (1.0,)
    """The weight of each term of the loss."""

    def __init__(self, model: Model, config: ObjectiveConfig, split: Any) -> None:
        super().__init__()
        self.model, self.config, self.split = model, config, split

    def sample_targets(self, indices: np.ndarray, generator: torch.Generator) -> Batch:  # noqa: ARG002
        """Return what is drawn anew for the examples in every epoch, such as which captions; on the CPU."""
        return {}

    def read(self, indices: np.ndarray) -> Batch:
        """Return examples of the training split, on the CPU, padded to the longest of them."""
        raise NotImplementedError

    @torch.no_grad()
    def prepare(self, indices: np.ndarray, batch: Batch, epoch: int) -> PreparedBatch:
        """Compute what needs no gradient. batch: on the device; epoch: counted from 1 in the stage."""
        raise NotImplementedError

    def forward(self, batch: Batch, *prepared: Tensor | None) -> Any:
        """Run the forward pass that is differentiated."""
        raise NotImplementedError


class Split(Protocol):
    """The examples of one split: their ids, and what they are read from, for messages."""

    @property
    def ids(self) -> Sequence[str]: ...

    @property
    def source(self) -> str: ...

    def __len__(self) -> int: ...


class Task(ABC):
    """A task with its data.

    name: as in config.json. objectives: what its stages may minimize; scheduled sampling is for captioning only.
    objective_class: minimizes "cross_entropy". extractor: the name of the extractor that made the features; None where
    there are none.
    """

    name: ClassVar[str]
    objectives: ClassVar[tuple[str, ...]] = ("cross_entropy",)
    objective_class: ClassVar[type[Objective]]

    def __init__(self, data: Any) -> None:
        """data: a data module with the splits `train` and `validation`."""
        self.data = data
        self.train: Split = data.train
        self.validation: Split = data.validation
        self.extractor: str | None = getattr(data.train, "extractor", None)

    @abstractmethod
    def create(self, model: str, options: Mapping[str, Any], init_from: Path | None = None) -> Model:
        """Return a new model of that name, with the sizes and the vocabulary of the data.

        init_from: a model folder whose vocabulary is used instead.
        """

    def build_model(self, model: str, options: Mapping[str, Any]) -> Any:
        """Return a new model of that name; raise ConfigError where it is for another task."""
        task = describe_model(model).task
        if task != self.name:
            known = ", ".join(list_models(task=self.name))
            raise ConfigError(f"{model} is a model for {task}, not for {self.name}; choose from {known}")
        return build_model(model, options)

    def objective(self, model: Any, config: ObjectiveConfig) -> Objective:
        """Return the objective of a stage."""
        return self.objective_class(model, config, self.train)

    @abstractmethod
    def metric_names(self) -> Collection[str]:
        """Return the names of the validation scores."""

    @staticmethod
    @abstractmethod
    def predict(model: Any, split: Any, indices: np.ndarray, *, beam_size: int) -> dict[str, Any]:
        """Return predictions for the examples at these indices by id, as JSON can hold them."""

    @staticmethod
    @abstractmethod
    def score(predictions: Mapping[str, Any], split: Any) -> dict[str, float | None]:
        """Return the scores of predictions for a split, or for some of its examples."""


def describe_split(split: Split) -> str:
    """Return the number of examples of a split and a digest of their ids and annotations; features do not count."""
    fields = [field.name for field in dataclasses.fields(split)] if dataclasses.is_dataclass(split) else ["ids"]
    digest = hashlib.sha256()
    for name in fields:
        value = getattr(split, name)
        if isinstance(value, tuple | list):
            for entry in value:
                digest.update(json.dumps(entry, default=_fields).encode())
    return f"{len(split)} examples, sha256 {digest.hexdigest()[:16]}"


def _fields(value: Any) -> dict[str, Any] | None:
    """Return a dataclass as a dictionary, and None for other values that JSON does not have."""
    is_record = dataclasses.is_dataclass(value)
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)} if is_record else None


def predict_split(
    task: Task | type[Task], model: Model, split: Any, indices: np.ndarray, *, beam_size: int
) -> dict[str, Any]:
    """Return the task's predictions, computed in evaluation mode."""
    with eval_mode(model), packed_linear(model):
        return task.predict(model, split, indices, beam_size=beam_size)


def set_vocabulary(model: Model, vocabulary: Vocabulary) -> None:
    """Give a model its vocabulary; it never generates the unknown token."""
    model.vocabulary = vocabulary
    model.generation_config = model.generation_config.replace(
        bos_token_id=vocabulary.bos_token_id,
        eos_token_id=vocabulary.eos_token_id,
        suppress_tokens=() if vocabulary.unk_token_id is None else (vocabulary.unk_token_id,),
    )


def regions_to_batch(regions: Regions) -> Batch:
    """Return the tensors of regions by name."""
    names = ("features", "boxes", "mask", "global_feature")
    tensors = {name: getattr(regions, name) for name in names}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def batch_to_regions(batch: Batch) -> Regions:
    """Return the regions of a batch."""
    return Regions(batch["features"], batch.get("boxes"), batch["mask"], batch.get("global_feature"))


def check_objective(task: Task, config: ObjectiveConfig) -> None:
    """Raise ConfigError where a task does not support an objective."""
    if config.objective not in task.objectives:
        known = " or ".join(task.objectives)
        raise ConfigError(f"training.objective={config.objective!r} is for captioning; {task.name} takes {known}")
    if getattr(config, "eval_collapse_repeats", False) and "self_critical" not in task.objectives:
        raise ConfigError(f"training.eval_collapse_repeats is for captioning; leave it out for {task.name}")
    if config.scheduled_sampling.increment and "self_critical" not in task.objectives:
        raise ConfigError(f"training.scheduled_sampling is for captioning; leave it out for {task.name}")


def check_boxes(model: Model, has_boxes: bool, source: str) -> None:
    """Raise DataError where a model needs boxes and the features have none."""
    if model.needs_boxes and not has_boxes:
        raise DataError(
            f"{source} holds no boxes, which {model.name} needs for its geometry; extract features with boxes, or "
            "train a model without geometry"
        )


T = TypeVar("T", bound="type[Task]")

TASKS: Registry[type[Task]] = Registry(
    "task",
    {
        "captioning": "legenda.tasks.captioning:Captioning",
        "vqa": "legenda.extras.vqa:Vqa",
        "grounding": "legenda.extras.grounding:Grounding",
        "translation": "legenda.extras.translation:Translation",
    },
)
"""A class of tasks is registered under its own `name`."""


def register_task(name: str) -> Callable[[T], T]:
    """Return a decorator that adds a class of tasks under a name, and sets its `name`."""

    def decorate(task: T) -> T:
        task.name = name
        return TASKS.register(name)(task)

    return decorate
