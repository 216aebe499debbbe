"""Optimizer, gradient clipping and weight averages of a training stage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from legenda.models.backbone import find_backbone
from legenda.training.config import TrainingConfig
from legenda.training.distributed import full_tensor

if TYPE_CHECKING:
    from lightning_fabric import Fabric


_OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "radam": torch.optim.RAdam, "sgd": torch.optim.SGD}


def create_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Return the configured optimizer of a model's parameters; `set_learning_rate` is called before every step."""
    backbone = find_backbone(model)
    own = [] if backbone is None else list(backbone.parameters())
    ids = set(map(id, own))
    parameters = [{"params": [p for p in model.parameters() if id(p) not in ids], "share": 1.0}]
    if own:
        parameters.append({"params": own, "share": config.backbone_rate})
    options: dict[str, Any] = {"betas": config.betas, "eps": config.eps, "weight_decay": config.weight_decay}
    if config.optimizer == "sgd":
        options = {"momentum": config.betas[0], "weight_decay": config.weight_decay}
    if config.optimizer != "radam" and config.precision != "16-mixed":
        options["fused"] = True  # radam has no fused kernel; those of the others unscale gradients after clipping
    return _OPTIMIZERS[config.optimizer](parameters, lr=1.0, **options)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate, of which a backbone gets its share."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["share"]


def clip_gradients(
    fabric: Fabric, module: nn.Module, optimizer: torch.optim.Optimizer, config: TrainingConfig
) -> Tensor | None:
    """Clip gradients by value, then by norm, in place; return their norm before both, None without gradients."""
    max_norm = float("inf") if config.max_grad_value or not config.max_grad_norm else config.max_grad_norm
    norm = fabric.clip_gradients(module, optimizer, max_norm=max_norm, error_if_nonfinite=False)
    if norm is not None:
        norm = full_tensor(norm)
    if config.max_grad_value:
        nn.utils.clip_grad_value_(module.parameters(), config.max_grad_value)
        if config.max_grad_norm:
            nn.utils.clip_grad_norm_(module.parameters(), config.max_grad_norm)
    return norm


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
