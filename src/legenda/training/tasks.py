"""What a stage of training does with a batch: cross-entropy on people's captions, and what every task offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.models import Captioner
from legenda.regions import Regions
from legenda.training.objectives import PADDING, cross_entropy
from legenda.training.scheduled_sampling import mix_inputs
from legenda.training.settings import Training


@dataclass(frozen=True, eq=False)
class Loss:
    """The parts of a loss, each a sum, and what there is to tell of the batch beside it."""

    sums: tuple[Float[Tensor, ""], ...]
    told: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A batch ready for the pass with gradients.

    inputs: what `forward` reads. counts: what each part of the loss is divided by. finish: makes the loss of what
    `forward` gave.
    """

    inputs: tuple[Tensor | None, ...]
    counts: tuple[float, ...]
    finish: Callable[[Any], Loss]


class Task(nn.Module):
    """A model with what it is trained for. `forward` takes and gives tensors only, as wrappers for devices need it."""

    shares: tuple[float, ...] = (1.0,)
    """Weights of the parts of the loss."""

    def __init__(self, model: Captioner) -> None:
        super().__init__()
        self.model = model

    @torch.no_grad()
    def prepare(self, images: np.ndarray, regions: Regions, captions: Int[Tensor, "B K T"], epoch: int) -> Prepared:
        """What needs no gradient. images: positions in the training split; captions: theirs, padded with -1."""
        raise NotImplementedError

    def forward(
        self, features: Tensor, boxes: Tensor | None, mask: Tensor, pooled: Tensor | None, *prepared: Tensor | None
    ) -> Any:
        """The one pass through the model that gradients flow back through."""
        raise NotImplementedError


class CrossEntropyTask(Task):
    """Cross-entropy of the images' own captions, all positions of all rows at once."""

    def __init__(self, model: Captioner, training: Training) -> None:
        super().__init__(model)
        self.training_settings = training

    @torch.no_grad()
    def prepare(self, images: np.ndarray, regions: Regions, captions: Int[Tensor, "B K T"], epoch: int) -> Prepared:  # noqa: ARG002
        """Input words and target words; some inputs are the model's own where sampling is scheduled."""
        inputs, targets = shifted(captions, self.model.decoding.end_id)
        share = self.training_settings.scheduled_sampling.at(epoch)
        if share:
            inputs = mix_inputs(self.model, self.model.encode(regions), inputs, share)
        return Prepared((inputs, targets), (float((targets != PADDING).sum()),), lambda total: Loss((total,)))

    def forward(
        self, features: Tensor, boxes: Tensor | None, mask: Tensor, pooled: Tensor | None, *prepared: Tensor | None
    ) -> Float[Tensor, ""]:
        """The sum over all words."""
        inputs, targets = prepared
        assert inputs is not None
        assert targets is not None
        logits = self.model(Regions(features, boxes, mask, pooled), inputs)
        training = self.training_settings
        return cross_entropy(logits, targets, training.label_smoothing, training.smoothing, reduction="sum")


def shifted(captions: Int[Tensor, "B K T"], end_id: int) -> tuple[Int[Tensor, "B K t"], Int[Tensor, "B K t"]]:
    """Inputs and targets of captions that begin with the begin id and are padded with -1."""
    inputs = captions[..., :-1]
    return inputs.masked_fill(inputs == PADDING, end_id), captions[..., 1:]
