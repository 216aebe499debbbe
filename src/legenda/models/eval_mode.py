"""Evaluation mode as a context manager."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def eval_mode(*models: nn.Module) -> Iterator[None]:
    """Run the block without dropout and without gradients; each submodule gets its mode back afterwards.

    Where a model has an `autocast_dtype`, the block runs under PyTorch's autocast.
    """
    modes = [(module, module.training) for model in models for module in model.modules()]
    dtypes = [dtype for module, _ in modes if (dtype := getattr(module, "autocast_dtype", None)) is not None]
    device = next((parameter.device.type for model in models for parameter in model.parameters()), "cpu")
    for model in models:
        model.eval()
    try:
        with torch.no_grad(), torch.autocast(device, dtype=dtypes[0] if dtypes else None, enabled=bool(dtypes)):
            yield
    finally:
        for module, training in modes:
            module.training = training
