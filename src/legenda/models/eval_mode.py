"""Evaluation mode and training mode as context managers."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn


@contextmanager
def eval_mode(*models: nn.Module) -> Iterator[None]:
    """Run the block without dropout and without gradients; each submodule gets its mode back afterwards.

    Where a model has an `autocast_dtype`, the block runs under PyTorch's autocast.
    """
    modules = [module for model in models for module in model.modules()]
    dtypes = [dtype for module in modules if (dtype := getattr(module, "autocast_dtype", None)) is not None]
    device = next((parameter.device.type for model in models for parameter in model.parameters()), "cpu")
    autocast = torch.autocast(device, dtype=dtypes[0]) if dtypes else nullcontext()  # leaves an outer autocast on
    with _mode(models, training=False), torch.no_grad(), autocast:
        yield


@contextmanager
def train_mode(*models: nn.Module) -> Iterator[None]:
    """Run the block with dropout; each submodule gets its mode back afterwards."""
    with _mode(models, training=True):
        yield


@contextmanager
def _mode(models: tuple[nn.Module, ...], *, training: bool) -> Iterator[None]:
    modes = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.train(training)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
