"""The interface of a task: its data, its models, and the objective of each training stage with its settings."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from legenda.config import Config, Count, Fraction, NonNegativeInt, PositiveInt, Probability
from legenda.data.registry import OpenedData, S, Split
from legenda.errors import ConfigError, DataError
from legenda.images.extractor import ExtractorIdentity
from legenda.models.base import Model, inference
from legenda.models.packing import PackedWeights
from legenda.models.registry import build_model, describe_model, list_models
from legenda.regions import Regions
from legenda.registry import Registry
from legenda.runtime.settings import Overrides
from legenda.text import Vocabulary

M = TypeVar("M", bound=Model)
P = TypeVar("P")


class SelfCriticalConfig(Config):
    """Self-critical sequence training (Rennie et al., 2017): sampling, reward, baseline and reduction."""

    num_samples: Count = 5
    """Captions sampled per image and step; with beam search the beam size, all of whose captions are used."""
    sample_method: Literal["multinomial", "beam"] = "multinomial"
    """Ancestral sampling, or beam search (Cornia et al., 2020; MD-SAN, Eq. 16)."""
    dropout: bool = True
    """Whether dropout is active while sampling, as in all releases; the greedy baseline always runs without it."""
    baseline: Literal["greedy", "mean_of_others", "mean"] = "mean_of_others"
    """The reward that is subtracted: that of the greedy caption (AoANet, X-LAN), the mean over the image's other
    samples, or the mean over all its samples (MD-SAN, for beams)."""
    rewards: Mapping[str, float] = Field(default_factory=lambda: {"CIDEr-D": 1.0})
    """The weight of each reward: CIDEr-D, BLEU-4, CLIPScore (of data with images), and registered ones."""
    clip: str = "openai/clip-vit-base-patch32"
    """The CLIP model of the reward CLIPScore, on the hub or in a folder."""
    reward_includes_eos: bool = True
    """Whether the end token counts as a word of captions and references (AoANet, X-LAN: yes; MD-SAN: no)."""
    max_reference_length: NonNegativeInt = 0
    """References are truncated to this many tokens for the reward, the end token included (AoANet, X-LAN: 16); 0 keeps
    them whole."""
    reward_on_words: bool = False
    """Whether rewards compare PTB tokens instead of ids of the vocabulary, so that unknown words of references differ
    from each other (MD-SAN and M2 as released)."""
    df_unit: Literal["images", "captions"] = "images"
    """The documents of CIDEr-D's document frequencies: all references of an image together, or each caption
    (MD-SAN)."""
    loss_reduction: Literal["token", "sequence", "max_length"] = "token"
    """What the sum over tokens, end tokens included, is divided by: the number of tokens (AoANet, X-LAN), the number of
    captions (the gradient of the expected reward), or captions times `max_length` (MD-SAN)."""
    max_length: Count = 20
    """Tokens of the longest sampled caption, the end token included."""
    xe_weight: Probability = 0.0
    """Weight of the cross-entropy of the image's reference captions; the policy gradient has 1 - `xe_weight`."""

    @model_validator(mode="after")
    def _check_self_critical(self) -> Self:
        if self.num_samples < 2 and self.baseline != "greedy":
            raise ValueError(f"a baseline {self.baseline} needs num_samples of at least 2")
        if not self.rewards or not all(math.isfinite(weight) for weight in self.rewards.values()):
            raise ValueError("rewards needs at least one reward, each with a finite weight")
        return self


class ScheduledSamplingConfig(Config):
    """Scheduled sampling (Bengio et al., 2015): how often an input token is replaced by a sample of the model.

    The probability grows by `increment` every `interval` epochs after `start_epoch`, up to `max_prob`; an `increment`
    of 0 turns it off.
    """

    increment: Fraction = 0.0
    start_epoch: NonNegativeInt = 0
    interval: PositiveInt = 5
    max_prob: Fraction = 0.5

    def at(self, epoch: int) -> float:
        """Return the probability in an epoch, counted from 1."""
        return min(self.increment * (max(epoch - 1 - self.start_epoch, 0) // self.interval), self.max_prob)


class ObjectiveConfig(Config):
    """The loss that a training stage minimizes, and its batches."""

    objective: Literal["cross_entropy", "self_critical"] = "cross_entropy"
    """The negative log-likelihood of the reference captions, or minus the expected reward of sampled captions."""
    self_critical: SelfCriticalConfig = Field(default_factory=SelfCriticalConfig)
    """Settings of the objective self_critical."""
    batch_size: PositiveInt = 10
    """Examples (images, questions, sentence pairs) per step, the total over all devices and accumulation steps."""
    captions_per_image: Count = 5
    """Reference captions per image and step; they share one encoding of the image."""
    max_caption_length: PositiveInt = 16
    """Training captions are truncated to this many words."""
    label_smoothing: Probability = 0.0
    label_smoothing_target: Literal["all", "non_target"] = "all"
    """The words that share the smoothed mass: all (Szegedy et al., 2016), or all but the target, in which case the loss
    is the KL divergence, whose minimum is 0 (AoANet and X-Transformer as released)."""
    scheduled_sampling: ScheduledSamplingConfig = Field(default_factory=ScheduledSamplingConfig)


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
    finish: Callable[[tuple[Tensor, ...]], Loss] = Loss


class Objective(nn.Module, Generic[S, M]):
    """A model with the loss of one training stage.

    A batch holds what `read` returns for some examples and what `sample_targets` chose for them. `forward` takes and
    returns tensors only, as DDP and FSDP require.
    """

    model: M
    loss_weights: tuple[float, ...] = (1.0,)
    """The weight of each term of the loss."""

    def __init__(self, model: M, config: ObjectiveConfig, split: S) -> None:
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

    def forward(self, batch: Batch, *prepared: Tensor | None) -> tuple[Tensor, ...]:
        """Run the forward pass that is differentiated; return the terms of the loss, or what `finish` takes."""
        raise NotImplementedError


class Task(ABC, Generic[S, M, P]):
    """A task with its data.

    name: as in config.json. objectives: what its stages may minimize; scheduled sampling is for captioning only.
    objective_class: minimizes "cross_entropy". examples: the class of its splits. extractor: the name of the extractor
    that made the features; None where there are none.
    """

    name: ClassVar[str]
    objectives: ClassVar[tuple[str, ...]] = ("cross_entropy",)
    objective_class: ClassVar[type[Objective]]
    examples: ClassVar[type] = object

    def __init__(self, data: OpenedData[S]) -> None:
        """Raise ConfigError for data of another task."""
        if not isinstance(data.train, self.examples):
            raise ConfigError(f"the data ({data.train.source}) are not for the task {self.name}; choose theirs")
        self.data, self.train, self.validation = data, data.train, data.validation
        extractor = getattr(data.train, "extractor", None)
        self.extractor = None if extractor is None else ExtractorIdentity.read(extractor, "the data")

    @abstractmethod
    def create(self, model: str, options: Mapping[str, object], init_from: Path | None = None) -> M:
        """Return a new model of that name, with the sizes and the vocabulary of the data.

        init_from: a model folder whose vocabulary is used instead.
        """

    def set_max_length(self, model: M) -> None:
        """Set the longest output that a model generates to that of the data, where they have one."""

    def build_model(self, model: str, options: Mapping[str, object]) -> Model:
        """Return a new model of that name; raise ConfigError where it is for another task."""
        self.check_model(model)
        return build_model(model, options)

    @classmethod
    def check_model(cls, model: str) -> None:
        """Raise ConfigError where the model of that name is for another task, unless this one has no models."""
        task, known = describe_model(model).task, list_models(task=cls.name)
        if known and task != cls.name:
            raise ConfigError(f"{model} is a model for {task}, not for {cls.name}; choose from {', '.join(known)}")

    def check_objective(self, config: ObjectiveConfig, stage: str) -> None:
        """Raise ConfigError, naming the stage, where the task does not support an objective."""
        if config.objective not in self.objectives:
            known = " or ".join(self.objectives)
            raise ConfigError(f"{stage}.objective={config.objective!r} is for captioning; {self.name} takes {known}")
        if getattr(config, "eval_collapse_repeats", False) and "self_critical" not in self.objectives:
            raise ConfigError(f"{stage}.eval_collapse_repeats is for captioning; leave it out for {self.name}")
        if config.scheduled_sampling.increment and "self_critical" not in self.objectives:
            raise ConfigError(f"{stage}.scheduled_sampling is for captioning; leave it out for {self.name}")

    def objective(self, model: M, config: ObjectiveConfig) -> Objective[S, M]:
        """Return the objective of a stage."""
        return self.objective_class(model, config, self.train)

    @abstractmethod
    def metric_names(self) -> Collection[str]:
        """Return the names of the validation scores."""

    @staticmethod
    @abstractmethod
    def predict(model: M, split: S, indices: np.ndarray, search: Overrides) -> dict[str, P]:
        """Return predictions for the examples at these indices by id, as JSON can hold them.

        search: what is set over the model's generation_config; tasks without a search ignore it.
        """

    @staticmethod
    @abstractmethod
    def score(predictions: Mapping[str, P], split: S) -> dict[str, float | None]:
        """Return the scores of predictions for a split, or for some of its examples."""

    @staticmethod
    def submit(predictions: Mapping[str, object], split: str, algorithm: str) -> tuple[str, object] | None:  # noqa: ARG004
        """Return name and content of the JSON file that a server scores; None where no server takes the predictions.

        algorithm: the name of the submission, of letters, digits and hyphens.
        """
        return None


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


def describe_features(split: object) -> str | None:
    """Return a digest of a sample of what the examples of a split are read from; None where it is made anew."""
    digest = getattr(getattr(split, "read", None), "digest", None)
    return None if digest is None else digest()


def _fields(value: object) -> dict[str, object] | None:
    """Return a dataclass as a dictionary, and None for other values that JSON does not have."""
    is_record = dataclasses.is_dataclass(value)
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)} if is_record else None


def predict_split(
    task: Task[S, M, P] | type[Task[S, M, P]], model: M, split: S, indices: np.ndarray, search: Overrides
) -> dict[str, P]:
    """Return the task's predictions."""
    with inference(model, PackedWeights()) as predictor:
        return task.predict(predictor, split, indices, search)


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
    return {name: tensor for name, tensor in vars(regions).items() if tensor is not None}


def batch_to_regions(batch: Batch) -> Regions:
    """Return the regions of a batch."""
    return Regions(batch["features"], batch.get("boxes"), batch["mask"], batch.get("global_feature"))


def check_boxes(model: Model, has_boxes: bool, source: str) -> None:
    """Raise DataError where a model needs boxes and the features have none."""
    if model.needs_boxes and not has_boxes:
        raise DataError(
            f"{source} holds no boxes, which {model.name} needs for its geometry; extract features with boxes, or "
            "train a model without geometry"
        )


T = TypeVar("T", bound=Task)

TASKS: Registry[type[Task]] = Registry("task", {"captioning": "legenda.tasks.captioning:Captioning"})
"""A class of tasks is registered under its own `name`."""


def register_task(name: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator that adds a class of tasks under a name, and sets its `name`."""

    def decorate(task: type[T]) -> type[T]:
        task.name = name
        return TASKS.register(name)(task)

    return decorate
