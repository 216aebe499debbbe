"""The type of numbers that a product is computed in."""

from __future__ import annotations

import torch
from torch import Tensor


def product_dtype(weight: Tensor) -> torch.dtype:
    """That of autocast where it is on for the weight's device, else the weight's own."""
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
