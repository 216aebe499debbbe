"""Evaluation mode as a context manager."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def eval_mode(*models: nn.Module) -> Iterator[None]:
    """Run the block without dropout and without gradients; each submodule gets its mode back afterwards."""
    modes = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
