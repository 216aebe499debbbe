"""Averages of the weights over training: exponential moving average, or stochastic weight averaging."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from legenda.training.config import TrainingConfig


class AverageWeights:
    """The average of a model's floating-point weights; other tensors are those of the model.

    values: the average by name, empty before the first update.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig) -> None:
        self.model, self.config = model, config
        self.values: dict[str, Tensor] = {}
        self.num_updates = 0

    def after_step(self, epoch: int) -> None:
        """Update the exponential moving average after a step of an epoch, counted from 1."""
        if self.config.weight_averaging == "ema" and epoch >= self.config.averaging_start_epoch:
            # The decay is smaller in the beginning, so that the initial weights are forgotten quickly.
            decay = min(self.config.ema_decay, (1 + self.num_updates) / (10 + self.num_updates))
            self._update(1 - decay)

    def after_epoch(self, epoch: int) -> None:
        """Update the mean over epochs at the end of an epoch, counted from 1."""
        if self.config.weight_averaging == "swa" and epoch >= self.config.averaging_start_epoch:
            self._update(1 / (1 + self.num_updates))

    @torch.no_grad()
    def _update(self, weight: float) -> None:
        for name, tensor in self.model.state_dict().items():
            if tensor.is_floating_point():
                if name in self.values:
                    self.values[name].lerp_(tensor.to(self.values[name].dtype), weight)
                else:
                    self.values[name] = tensor.detach().clone()
        self.num_updates += 1

    @contextmanager
    def swap_in(self) -> Iterator[None]:
        """Give the model the averaged weights inside the block, and its current ones again afterwards."""
        if not self.values:
            yield
            return
        current = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        self.model.load_state_dict(self.values, strict=False)
        try:
            yield
        finally:
            self.model.load_state_dict(current)
