"""Normalized self-attention: normalization of the queries or keys before their product (NG-SAN, section 4.1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from legenda.regions import at_least_float32, check_mask
from legenda.registry import Registry

EPS, MOMENTUM = 1e-5, 0.1


class MaskedInstanceNorm(nn.Module):
    """Instance normalization over the valid regions of each image, per channel (NG-SAN, Eq. 6).

    Statistics are of valid regions only and the same in training and evaluation, so neither padding nor the other
    images of a batch change the result. `affine` adds the scale and shift of "IN" in the paper's Table 2.
    """

    def __init__(self, dim: int, affine: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim)) if affine else None
        self.bias = nn.Parameter(torch.zeros(dim)) if affine else None

    def forward(self, x: Float[Tensor, "B N C"], mask: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N C"]:
        """Return the normalized x, with any finite values for padding.

        Statistics are computed in float32 at least, also under autocast.
        """
        check_mask(mask)
        dtype, x = x.dtype, at_least_float32(x)
        if mask is None:
            centered = x - x.mean(dim=1, keepdim=True)
            variance = centered.square().mean(dim=1, keepdim=True)
        else:
            real = mask.unsqueeze(-1).to(x.dtype)
            x = x.masked_fill(~mask.unsqueeze(-1), 0.0)
            count = real.sum(dim=1, keepdim=True).clamp(min=1.0)
            centered = (x - x.sum(dim=1, keepdim=True) / count) * real
            variance = centered.square().sum(dim=1, keepdim=True) / count
        y = centered * torch.rsqrt(variance + EPS)
        if self.weight is not None and self.bias is not None:
            y = y * self.weight + self.bias
        return y.to(dtype)


class MaskedBatchNorm(nn.Module):
    """Batch normalization over all valid regions of a batch, with running statistics for evaluation (Table 2, "BN")."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))

    def forward(self, x: Float[Tensor, "B N C"], mask: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N C"]:
        """Return the normalized x; in training the running statistics are updated with those of the valid regions."""
        check_mask(mask)
        dtype, x = x.dtype, at_least_float32(x)
        if self.training:
            # by sums: indexing the valid regions would synchronize with a GPU
            real = x.new_ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
            padding, count = ~real.unsqueeze(-1), real.sum()
            mean = x.masked_fill(padding, 0.0).sum(dim=(0, 1)) / count
            variance = (x - mean).masked_fill(padding, 0.0).square().sum(dim=(0, 1)) / count
            with torch.no_grad():
                unbiased = variance * (count / (count - 1).clamp(min=1))
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), MOMENTUM)
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), MOMENTUM)
        else:
            mean, variance = self.running_mean, self.running_var
        return ((x - mean) * torch.rsqrt(variance + EPS) * self.weight + self.bias).to(dtype)


class RowLayerNorm(nn.Module):
    """Layer normalization of each query (Table 2, "LN"); the mask is not read."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=EPS)

    def forward(self, x: Float[Tensor, "B N C"], mask: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N C"]:
        """Return x normalized over its channels."""
        del mask
        return self.norm(x)


class StdLayerNorm(nn.Module):
    """Layer normalization that divides by the unbiased standard deviation plus `eps`, as in AoANet's release.

    PyTorch's LayerNorm adds eps to the biased variance, before the square root.
    """

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Return x normalized over its channels."""
        dtype, x = x.dtype, at_least_float32(x)
        centered = x - x.mean(dim=-1, keepdim=True)
        deviation = torch.linalg.vector_norm(centered, dim=-1, keepdim=True) / math.sqrt(x.shape[-1] - 1)
        return (self.weight * centered / (deviation + self.eps) + self.bias).to(dtype)


NORMS: Registry[Callable[[int], nn.Module | None]] = Registry(
    "norm",
    {
        "none": lambda _: None,
        "in": MaskedInstanceNorm,
        "in_affine": partial(MaskedInstanceNorm, affine=True),
        "ln": RowLayerNorm,
        "bn": MaskedBatchNorm,
    },
)
"""Norms of queries and keys by name: functions of the number of channels that return a module, or None for "none"."""
