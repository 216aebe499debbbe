"""Local windows: regions attend only to regions near them, as in Swin and HaloNet (MD-SAN, Table IX)."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor

from legenda.registry import Registry


def swin_windows(positions: Float[Tensor, "B N 2"], size: int, shift: int) -> Bool[Tensor, "B N N"]:
    """Return whether two regions lie in the same window of `size` x `size` cells (Liu et al., 2021).

    shift: how many cells the windows are shifted right and down. Windows at the border are cut off, which is
    equivalent to the masks of Swin's cyclic shift.
    """
    block = ((positions - shift) / size).floor()
    return (block.unsqueeze(2) == block.unsqueeze(1)).all(dim=-1)


def halo_windows(positions: Float[Tensor, "B N 2"], size: int, halo: int) -> Bool[Tensor, "B N N"]:
    """Return whether a key lies in the query's block of `size` x `size` cells or at most `halo` cells around it.

    Vaswani et al., 2021; row i is the query, column j the key.
    """
    corner = ((positions / size).floor() * size).unsqueeze(2)
    key = positions.unsqueeze(1)
    return ((key >= corner - halo) & (key < corner + size + halo)).all(dim=-1)


def no_windows(positions: Tensor, size: int, halo: int) -> tuple[None, None]:  # noqa: ARG001
    """Return no windows, for "none"."""
    return None, None


def shifted_windows(positions: Tensor, size: int, halo: int) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Return Swin's windows of both kinds of layers; those of the second are shifted by half their size."""
    return swin_windows(positions, size, 0), swin_windows(positions, size, size // 2)


def blocks_with_halo(positions: Tensor, size: int, halo: int) -> tuple[Tensor, Tensor]:
    """Return HaloNet's windows, which are the same in all layers."""
    return (halo_windows(positions, size, halo),) * 2


Windows = Callable[[Tensor, int, int], tuple[Any, Any]]

WINDOWS: Registry[Windows] = Registry("window", {"none": no_windows, "swin": shifted_windows, "halo": blocks_with_halo})
"""Windows by name: from positions `(B, N, 2)` in cells, size and halo to what may be attended to, `(B, N, N)`, in the
first and every other layer and in the layers between."""


def local_windows(
    windows: Windows, positions: Float[Tensor, "B N 2"], mask: Bool[Tensor, "B N"], *, size: int, halo: int
) -> tuple[Bool[Tensor, "B N N"] | None, Bool[Tensor, "B N N"] | None]:
    """Return which keys may be attended to in even layers, counted from 0, and in odd ones; None for all.

    windows: one of `WINDOWS`. Swin's windows are shifted by half their size in odd layers. Padded regions attend
    everywhere, so that no query is without a key.
    """
    first, second = windows(positions, size, halo)
    padding = ~mask.unsqueeze(2)
    return None if first is None else first | padding, None if second is None else second | padding
