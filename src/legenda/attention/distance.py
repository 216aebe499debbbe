"""Distance-sensitive self-attention: scores rescaled by the distance of the regions (MD-SAN, section IV-A).

Local windows cut them off at a distance: regions attend only to regions near them, as in Swin and HaloNet (Table IX).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention.geometry import Geometry
from legenda.registry import Registry

Scaling = Literal["sigmoid", "linear", "quadratic", "scalar"]
DistanceInit = Literal["xavier", "one"]

_MAX_DISTANCE = 2.0
"""Upper bound of the rescaled distance in the piecewise functions (Eqs. 17 and 18)."""


def no_distance(differences: Float[Tensor, "B N N 2"]) -> None:
    """Return no distance, for "none"."""


def manhattan(differences: Float[Tensor, "B N N 2"]) -> Float[Tensor, "B N N"]:
    """Return the sum of both differences."""
    return differences.sum(dim=-1)


def euclidean(differences: Float[Tensor, "B N N 2"]) -> Float[Tensor, "B N N"]:
    """Return the Euclidean norm of the differences."""
    return torch.linalg.vector_norm(differences, dim=-1)


def chebyshev(differences: Float[Tensor, "B N N 2"]) -> Float[Tensor, "B N N"]:
    """Return the larger of both differences."""
    return differences.amax(dim=-1)


Distance = Callable[[Tensor], Tensor | None]

DISTANCES: Registry[Distance] = Registry(
    "distance", {"none": no_distance, "manhattan": manhattan, "euclidean": euclidean, "chebyshev": chebyshev}
)
"""Distances by name: functions from the absolute differences of columns and rows of each pair to its distance (Eq. 6
and Table VII)."""


def pair_distances(positions: Float[Tensor, "B N 2"], distance: Distance) -> Float[Tensor, "B N N"] | None:
    """Return the distance of the regions of each pair, in the units of `positions`; distance: one of `DISTANCES`."""
    return distance((positions.unsqueeze(2) - positions.unsqueeze(1)).abs())


class DistanceRescale(nn.Module):
    """ReLU(scores) * R, where R is a function of the distance that each head learns (DSA, Eq. 8).

    sigmoid: R = (1 + e^v) / (1 + e^(v - w r)) at the distance r, which is 1 at r = 0 (Eq. 7); linear: w r clipped to
    0..2 (Eq. 17); quadratic: w r^2 clipped to 0..2 (Eq. 18); scalar: w r, as we read "naive scalar" (Table VIII).
    """

    def __init__(self, num_heads: int, scaling: Scaling = "sigmoid", init: DistanceInit = "xavier") -> None:
        """Create w, and v for sigmoid.

        init: "one" sets w = 1 and v = 0, as the released code declares them; "xavier" draws them from U(-a, a) with
        a = sqrt(6 / (heads + 1)), as the released training does, which applies Xavier initialization to every matrix.
        The piecewise functions take the absolute values: at w < 0 they are 0 without gradient.
        """
        super().__init__()
        self.scaling = scaling
        self.weight = nn.Parameter(torch.ones(num_heads))
        self.shift = nn.Parameter(torch.zeros(num_heads)) if scaling == "sigmoid" else None
        if init == "xavier":
            bound = (6 / (num_heads + 1)) ** 0.5
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -bound, bound)
        if scaling in ("linear", "quadratic"):
            self.weight.data.abs_()

    def forward(self, scores: Float[Tensor, "B H N N"], geometry: Geometry) -> Float[Tensor, "B H N N"]:
        """Return the rescaled scores, the input of the softmax."""
        assert geometry.distance is not None
        return F.relu(scores) * self.factors(geometry.distance)

    def factors(self, distance: Float[Tensor, "B N N"]) -> Float[Tensor, "B H N N"]:
        """Return R for every head and pair."""
        weight, r = self.weight[:, None, None], distance.unsqueeze(1)
        match self.scaling:
            case "sigmoid":
                assert self.shift is not None
                shift = self.shift[:, None, None]
                # Eq. 7 without overflow where v - w r is large
                return (1 + shift.exp()) * torch.sigmoid(weight * r - shift)
            case "linear":
                return (weight * r).clamp(0.0, _MAX_DISTANCE)
            case "quadratic":
                return (weight * r.square()).clamp(0.0, _MAX_DISTANCE)
            case "scalar":
                return weight * r


Windows = tuple[Bool[Tensor, "B N N"] | None, Bool[Tensor, "B N N"] | None]


def no_windows(positions: Tensor, size: int, halo: int) -> Windows:  # noqa: ARG001
    """Return no windows, for "none"."""
    return None, None


def swin_windows(positions: Float[Tensor, "B N 2"], size: int, halo: int) -> Windows:  # noqa: ARG001
    """Return whether two regions lie in the same window of `size` x `size` cells (Liu et al., 2021).

    In odd layers the windows are shifted right and down by half their size. Windows at the border are cut off, which is
    equivalent to the masks of Swin's cyclic shift.
    """

    def shifted_by(shift: int) -> Bool[Tensor, "B N N"]:
        block = ((positions - shift) / size).floor()
        return (block.unsqueeze(2) == block.unsqueeze(1)).all(dim=-1)

    return shifted_by(0), shifted_by(size // 2)


def halo_windows(positions: Float[Tensor, "B N 2"], size: int, halo: int) -> Windows:
    """Return whether a key lies in the query's block of `size` x `size` cells or at most `halo` cells around it.

    Vaswani et al., 2021; row i is the query, column j the key. The windows are the same in all layers.
    """
    corner = ((positions / size).floor() * size).unsqueeze(2)
    key = positions.unsqueeze(1)
    return (((key >= corner - halo) & (key < corner + size + halo)).all(dim=-1),) * 2


WINDOWS: Registry[Callable[[Tensor, int, int], Windows]] = Registry(
    "window", {"none": no_windows, "swin": swin_windows, "halo": halo_windows}
)
"""Windows by name: from positions `(B, N, 2)` in cells, size and halo to what may be attended to, `(B, N, N)`, in the
first and every other layer and in the layers between."""


def local_windows(
    windows: Callable[[Tensor, int, int], Windows],
    positions: Float[Tensor, "B N 2"],
    mask: Bool[Tensor, "B N"],
    *,
    size: int,
    halo: int,
) -> tuple[Bool[Tensor, "B N N"] | None, Bool[Tensor, "B N N"] | None]:
    """Return which keys may be attended to in even layers, counted from 0, and in odd ones; None for all.

    windows: one of `WINDOWS`. Padded regions attend everywhere, so that no query is without a key.
    """
    first, second = windows(positions, size, halo)
    padding = ~mask.unsqueeze(2)
    return None if first is None else first | padding, None if second is None else second | padding
