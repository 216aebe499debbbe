"""Dropout (Srivastava et al., 2014) with masks that are fast to draw on CPUs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

_MIN_NUMEL = 4096
"""Below this number of elements PyTorch's masks are as fast."""


def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return `torch.nn.functional.dropout(x, p, training, inplace)`, with a mask of 16-bit random numbers on CPUs.

    PyTorch draws a CPU mask from Mersenne Twister; NumPy's SFC64, seeded from PyTorch's generator at each call, takes
    a fourth of the time. p is rounded to 1/65536.
    """
    if not training or p == 0:
        return x
    if x.device.type != "cpu" or x.numel() < _MIN_NUMEL or p == 1 or torch.compiler.is_compiling():
        return F.dropout(x, p, inplace=inplace)
    generator = np.random.SFC64(int(torch.randint(2**63 - 1, ())))
    bits = generator.random_raw(-(-x.numel() // 4)).view(np.uint16)[: x.numel()]
    kept = bits >= min(round(p * 65536), 65535)
    mask = torch.from_numpy(kept.view(np.uint8)).view(x.shape)  # 8 bits of memory for the gradient
    return (x.mul_(mask) if inplace else x * mask).mul_(1 / (1 - p))


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` with the masks of `dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return `input`, in training with a share `p` of its elements set to 0 and the others divided by 1 - p."""
        return dropout(input, self.p, self.training, self.inplace)
