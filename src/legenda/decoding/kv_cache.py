"""Tensors that a decoder keeps between steps: selected by beam, and caches that grow or have a fixed capacity."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from legenda.regions import Memory

CacheLength = int | Tensor
"""Number of cached tokens: an int where the cache grows, a tensor `()` where it has a fixed capacity (static cache)."""


def gather_beams(x: Tensor, beams: Int[Tensor, "B W"]) -> Tensor:
    """Return the rows `beams` of each image of `x` `(B, K, ...)`."""
    image = torch.arange(len(beams), device=beams.device).unsqueeze(1)
    return x[image, beams]


_State = TypeVar("_State", bound="RowState")


class RowState:
    """Base class of decoder states: dataclasses of tensors `(B, K, ...)`, of tuples of these, and of None.

    shared: the names of the fields that all rows of an image share.
    """

    shared: ClassVar[tuple[str, ...]] = ()

    def reorder(self: _State, beams: Int[Tensor, "B W"]) -> _State:
        """Return the state of the rows `beams` of each image."""
        state: Any = self
        names = [field.name for field in fields(state) if field.name not in self.shared]
        return replace(state, **{name: _gather(getattr(state, name), beams) for name in names})


def _gather(value: Any, beams: Int[Tensor, "B W"]) -> Any:
    if isinstance(value, tuple):
        return tuple(_gather(part, beams) for part in value)
    return None if value is None else gather_beams(value, beams)


def append_kv(past: Tensor, current: Tensor, dim: int, length: CacheLength) -> Tensor:
    """Return the cache with one more token in dimension `dim`: appended, or written at `length` in a static cache."""
    if isinstance(length, int):
        return torch.cat([past, current], dim=dim)
    return past.index_copy(dim, length.view(1), current.to(past.dtype))


def empty_kv(
    memory: Memory, num_heads: int, num_rows: int, capacity: int, dtype: torch.dtype
) -> tuple[tuple[Tensor, Tensor], ...]:
    """Return keys and values of zeros `(B, K, H, capacity, d)` for each layer with cross-attention to the memory."""
    B, _, D = memory.states.shape
    zeros = memory.states.new_zeros(B, num_rows, num_heads, capacity, D // num_heads, dtype=dtype)
    return tuple((zeros, zeros) for _ in memory.cross_kv)
