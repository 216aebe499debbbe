"""Products of one matrix with many inputs of as many rows, on processors: the matrix is laid out for them once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

_FEW = range(6, 41)
"""Rows with which W x^T is faster than x W^T, and laying out W not earned back within a caption (MKL, AVX-512)."""
_LARGE = 2**18
"""Numbers of a matrix that is worth laying out."""


class RepeatedProduct:
    """x W^T + b, again and again, mostly for x of `rows` rows, while W does not change.

    A library's product of few rows spends up to half of its time on laying out W, or on a layout that does not suit
    them. Results differ from `linear` by the order in which sums are rounded. Nothing is differentiated.
    """

    def __init__(self, weight: Float[Tensor, "O I"], rows: int) -> None:
        self.weight, self.rows = weight, rows
        own = weight.device.type == "cpu"
        self._turned = own and weight.dtype in (torch.float32, torch.float64)
        pays = weight.numel() >= _LARGE and rows > (1 if weight.dtype is torch.bfloat16 else _FEW[-1])
        self._packed = own and pays and _can_pack(weight.dtype)
        self._layout: Tensor | None = None

    def __call__(self, x: Float[Tensor, "rows I"], bias: Float[Tensor, "#O"] | None = None) -> Float[Tensor, "rows O"]:
        """The product; x and b are of W's type."""
        if self._packed and len(x) == self.rows:
            if self._layout is None:
                self._layout = _pack(self.weight, self.rows)
            return _multiply(x, self._layout, self.weight, bias)
        if self._turned and len(x) in _FEW:
            columns = x.T
            found = self.weight @ columns if bias is None else torch.addmm(bias[:, None], self.weight, columns)
            return found.T.contiguous()
        return F.linear(x, self.weight, bias)


# What torch's own compiler calls (torch/_inductor/fx_passes/mkldnn_fusion.py): MKL's layout for single precision, which
# is made for one number of rows, and oneDNN's for bfloat16.


def _pack(weight: Tensor, rows: int) -> Tensor:
    layout: Callable[[Tensor, int], Tensor] = (
        torch.ops.mkl._mkl_reorder_linear_weight
        if weight.dtype is torch.float32
        else torch.ops.mkldnn._reorder_linear_weight
    )
    return layout(_contiguous(weight), rows)


_STRIPE = 64


def _contiguous(weight: Tensor) -> Tensor:
    """The same row by row; a matrix that stands column by column is copied in stripes, which the cache holds."""
    if weight.stride(0) != 1 or weight.is_contiguous():
        return weight.contiguous()
    copied = weight.new_empty(weight.shape)
    for at in range(0, weight.shape[1], _STRIPE):
        copied[:, at : at + _STRIPE] = weight[:, at : at + _STRIPE]
    return copied


def _multiply(x: Tensor, layout: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.dtype is torch.float32:
        return torch.ops.mkl._mkl_linear(x.contiguous(), layout, weight, bias, len(x))
    return torch.ops.mkldnn._linear_pointwise(x.contiguous(), layout, bias, "none", [], "")


@cache
def _can_pack(dtype: torch.dtype) -> bool:
    """Whether this build of torch has these functions for `dtype`, and they give the product."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    x, weight = torch.eye(8, 16, dtype=dtype), torch.arange(256.0).view(16, 16).to(dtype)
    try:
        found = _multiply(x, _pack(weight, len(x)), weight, None)
    except (AttributeError, RuntimeError):
        return False
    return bool((found == weight.T[:8]).all())
