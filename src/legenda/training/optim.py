"""The optimiser of a stage, and what is done to gradients before it steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from legenda.training.config import Training
from legenda.training.distributed import whole

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_KINDS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "radam": torch.optim.RAdam}


def create_optimizer(parameters: Iterable[nn.Parameter], training: Training) -> torch.optim.Optimizer:
    """The optimiser that the settings name; its rate is set anew at every step."""
    options = {"betas": training.betas, "eps": training.epsilon, "weight_decay": training.weight_decay}
    if training.optimizer != "radam":  # torch has no fused kernel for it
        options["fused"] = True
    return _KINDS[training.optimizer](parameters, lr=1.0, **options)


def clip(fabric: Fabric, module: nn.Module, optimizer: torch.optim.Optimizer, training: Training) -> Tensor | None:
    """Cuts each number of the gradients, then their norm, and gives the norm before both; None for no gradients."""
    first = float("inf") if training.clip_value or not training.clip_norm else training.clip_norm
    norm = fabric.clip_gradients(module, optimizer, max_norm=first, error_if_nonfinite=False)
    if norm is not None:
        norm = whole(norm)
    if training.clip_value:
        nn.utils.clip_grad_value_(module.parameters(), training.clip_value)
        if training.clip_norm:
            nn.utils.clip_grad_norm_(module.parameters(), training.clip_norm)
    return norm
