"""Means of the weights over training, which are often better than the last ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from legenda.training.config import Training


class AverageWeights:
    """The mean of a model's floating-point weights, in full precision.

    values: the mean by name, empty before anything entered it; other tensors are taken from the model as they are.
    """

    def __init__(self, model: nn.Module, training: Training) -> None:
        self.model, self.training = model, training
        self.values: dict[str, Tensor] = {}
        self.entered = 0
        """How many weights have entered it."""

    def after_step(self, epoch: int) -> None:
        """Takes in the weights of a step in an epoch counted from 1."""
        if self.training.average == "exponential" and epoch >= self.training.average_from:
            # A mean over few steps forgets faster, so that the first weights do not linger.
            decay = min(self.training.average_decay, (1 + self.entered) / (10 + self.entered))
            self._enter(1 - decay)

    def after_epoch(self, epoch: int) -> None:
        """Takes in the weights at the end of an epoch counted from 1."""
        if self.training.average == "epochs" and epoch >= self.training.average_from:
            self._enter(1 / (1 + self.entered))

    @torch.no_grad()
    def _enter(self, share: float) -> None:
        for name, tensor in self.model.state_dict().items():
            if tensor.is_floating_point():
                if name in self.values:
                    self.values[name].lerp_(tensor.to(self.values[name].dtype), share)
                else:
                    self.values[name] = tensor.detach().clone()
        self.entered += 1

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the mean's weights in this block, its own again after it."""
        if not self.values:
            yield
            return
        own = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        self.model.load_state_dict(self.values, strict=False)
        try:
            yield
        finally:
            self.model.load_state_dict(own)
