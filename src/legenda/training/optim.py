"""Optimizer and gradient clipping of a training stage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from legenda.training.config import TrainingConfig
from legenda.training.distributed import full_tensor

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "radam": torch.optim.RAdam, "sgd": torch.optim.SGD}


def create_optimizer(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> torch.optim.Optimizer:
    """Return the configured optimizer; the training loop sets its learning rate before every step."""
    options: dict[str, Any] = {"betas": config.betas, "eps": config.eps, "weight_decay": config.weight_decay}
    if config.optimizer == "sgd":
        options = {"momentum": config.betas[0], "weight_decay": config.weight_decay}
    if config.optimizer != "radam" and config.precision != "16-mixed":
        options["fused"] = True  # radam has no fused kernel; those of the others unscale gradients after clipping
    return _OPTIMIZERS[config.optimizer](parameters, lr=1.0, **options)


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
