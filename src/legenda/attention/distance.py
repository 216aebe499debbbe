"""Distance-sensitive self-attention: scores grow or shrink with the distance of the regions (MD-SAN, section IV-A)."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention.geometry import Geometry

Distance = Literal["none", "manhattan", "euclidean", "chebyshev"]
Scaling = Literal["sigmoid", "linear", "quadratic", "scalar"]
Start = Literal["xavier", "one"]

CEILING = 2.0
"""The largest factor of the piecewise functions (Eqs. 17 and 18)."""


def pair_distances(places: Float[Tensor, "B N 2"], distance: Distance) -> Float[Tensor, "B N N"] | None:
    """How far the regions of each pair lie from each other, in the units of `places` (Eq. 6 and Table VII)."""
    if distance == "none":
        return None
    apart = (places.unsqueeze(2) - places.unsqueeze(1)).abs()
    match distance:
        case "manhattan":
            return apart.sum(dim=-1)
        case "euclidean":
            return torch.linalg.vector_norm(apart, dim=-1)
        case "chebyshev":
            return apart.amax(dim=-1)


class DistanceRescale(nn.Module):
    """ReLU(scores) * R, where R is a function of the distance that each head learns (DSA, Eq. 8).

    sigmoid: R = (1 + e^v) / (1 + e^(v - w r)) at the distance r, which is 1 at r = 0 (Eq. 7); linear: w r kept within
    0..2 (Eq. 17); quadratic: w r^2 kept within 0..2 (Eq. 18); scalar: w r, our reading of "naive scalar" (Table VIII).
    """

    def __init__(self, num_heads: int, scaling: Scaling = "sigmoid", start: Start = "xavier") -> None:
        """start: "one" begins with w = 1 and v = 0, as the released code declares them; "xavier" with even numbers of
        both signs up to sqrt(6 / (heads + 1)), as it really does, because it fills whatever has two dimensions. The
        piecewise functions begin with the sizes of these numbers, for where w < 0 they are 0 and never learn.
        """
        super().__init__()
        self.scaling = scaling
        self.weight = nn.Parameter(torch.ones(num_heads))
        self.shift = nn.Parameter(torch.zeros(num_heads)) if scaling == "sigmoid" else None
        if start == "xavier":
            bound = (6 / (num_heads + 1)) ** 0.5
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -bound, bound)
        if scaling in ("linear", "quadratic"):
            self.weight.data.abs_()

    def forward(self, scores: Float[Tensor, "B H N N"], geometry: Geometry) -> Float[Tensor, "B H N N"]:
        """The scores that the softmax reads."""
        assert geometry.distance is not None
        return F.relu(scores) * self.factors(geometry.distance)

    def factors(self, distance: Float[Tensor, "B N N"]) -> Float[Tensor, "B H N N"]:
        """R of every head and pair."""
        weight, apart = self.weight[:, None, None], distance.unsqueeze(1)
        match self.scaling:
            case "sigmoid":
                assert self.shift is not None
                shift = self.shift[:, None, None]
                # Equal to Eq. 7, whose own form overflows where v - w r is large.
                return (1 + shift.exp()) * torch.sigmoid(weight * apart - shift)
            case "linear":
                return (weight * apart).clamp(0.0, CEILING)
            case "quadratic":
                return (weight * apart.square()).clamp(0.0, CEILING)
            case "scalar":
                return weight * apart
