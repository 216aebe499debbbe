"""Dropout whose masks cost a CPU little (Srivastava et al., 2014)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LEAST = 4096
"""Below so many numbers torch's own masks are as fast."""


def dropout(x: Tensor, rate: float, training: bool = True, inplace: bool = False) -> Tensor:
    """Each number of `x` is erased with the probability `rate`, the others are divided by 1 - rate.

    What torch.nn.functional.dropout does, in distribution. On CPUs torch draws its masks one double at a time, which
    takes a quarter of a training step; here they are 16-bit numbers of a generator that torch's own seeds at every
    call, so that runs stay repeatable. How many are erased is rounded to
    1/65536 there.
    """
    if not training or rate == 0:
        return x
    if x.device.type != "cpu" or x.numel() < _LEAST or rate == 1 or torch.compiler.is_compiling():
        return F.dropout(x, rate, inplace=inplace)
    threshold = min(round(rate * 65536), 65535)
    # numpy compares and converts some six times faster than torch on one core
    kept = (_bits(x.numel()) >= threshold - 32768).astype(np.float32)
    mask = torch.from_numpy(kept).to(x.dtype).mul_(1 / (1 - rate)).view(x.shape)
    return x.mul_(mask) if inplace else x * mask


def _bits(count: int) -> np.ndarray:
    """Random numbers of -32768 to 32767, `(count,)`."""
    seed = int(torch.randint(2**63 - 1, ()))
    words = np.random.SFC64(seed).random_raw(-(-count // 4))
    return words.view(np.int16)[:count]


class Dropout(nn.Dropout):
    """Torch's module with the masks of `dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        """`input` of any shape, in training with some of its numbers erased."""
        return dropout(input, self.p, self.training)
