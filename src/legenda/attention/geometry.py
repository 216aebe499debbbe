"""Geometric features of boxes and the bias of geometry-aware self-attention (NG-SAN, section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.regions import at_least_float32
from legenda.registry import Registry

Bias = Literal["content", "query", "key"]
_BIASES: tuple[Bias, ...] = ("content", "query", "key")

_MIN_EXTENT = 1e-3
"""Lower bound of relative distances and box sides, so that every logarithm is finite."""

_MIN_FACTOR = 1e-6
"""Lower bound of the factors of RelativeBias, as in the code of Herdade et al."""

_GRID_TOLERANCE = 0.05
"""Largest distance, in cells, of a corner from that of a grid's cell; boxes may be stored in half precision."""


@dataclass(frozen=True, eq=False)
class Geometry:
    """The geometry of all pairs of regions that one layer's self-attention reads.

    embedded: the embedding G of each pair, for GeometryBias, or its sinusoidal embedding, for RelativeBias; distance:
    between the regions of each pair, in cells; window: True where region i may attend to region j.
    """

    embedded: Float[Tensor, "B N N G"] | None = None
    distance: Float[Tensor, "B N N"] | None = None
    window: Bool[Tensor, "B N N"] | None = None


def grid_positions(boxes: Float[Tensor, "B N 4"], mask: Bool[Tensor, "B N"], grid_size: int) -> Float[Tensor, "B N 2"]:
    """Return column and row of each region, in cells.

    The cells of a grid have integer positions, whatever the size of the grid; other regions have their centers, in an
    image of `grid_size` x `grid_size` cells. Boxes belong to a grid where all valid ones of an image have one size, the
    image's sides are multiples of it, and the boxes lie at multiples of it. Padded regions lie at 0, 0.
    """
    boxes = at_least_float32(boxes)
    corner, size = boxes[..., :2], boxes[..., 2:] - boxes[..., :2]
    padding = ~mask.unsqueeze(-1)
    side = size.masked_fill(padding, 0.0).sum(dim=1, keepdim=True) / mask.sum(dim=1)[:, None, None]
    count = (1 / side.clamp(min=_MIN_EXTENT)).round()
    index = (corner * count).round()
    error = torch.maximum((corner * count - index).abs(), (size * count - 1).abs())
    is_grid = ((error < _GRID_TOLERANCE) | padding).all(dim=-1).all(dim=-1)
    center = (corner + size / 2) * grid_size
    return torch.where(is_grid[:, None, None], index, center).masked_fill(padding, 0.0)


def relative_geometry(
    boxes: Float[Tensor, "B N 4"], mask: Bool[Tensor, "B N"] | None = None
) -> Float[Tensor, "B N N 4"]:
    """Return the four features of each pair of boxes (NG-SAN, Eq. 8): row i is the query, column j the key.

    log(|x_i - x_j| / w_i), log(|y_i - y_j| / h_i), log(w_i / w_j), log(h_i / h_j) of centers, widths and heights,
    with relative distances of at least `_MIN_EXTENT`. They are ratios along one axis each, so pixels and fractions of
    the image give the same numbers. Padded boxes count as the whole image, which keeps their gradients finite. The
    features are float32 at least, as are those of the other functions of boxes here.
    """
    boxes = at_least_float32(boxes)
    if mask is not None:
        image = boxes.new_tensor([0.0, 0.0, 1.0, 1.0])
        boxes = torch.where(mask.unsqueeze(-1), boxes, image)
    low, high = boxes[..., :2], boxes[..., 2:]
    center, size = (low + high) / 2, (high - low).clamp(min=_MIN_EXTENT)
    distance = (center.unsqueeze(2) - center.unsqueeze(1)).abs() / size.unsqueeze(2)
    log_size = size.log()
    return torch.cat([distance.clamp(min=_MIN_EXTENT).log(), log_size.unsqueeze(2) - log_size.unsqueeze(1)], dim=-1)


def as_weights_of(layer: nn.Linear, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return x in the dtype of a layer's weights; as it is where these are packed, which takes every dtype."""
    weight = layer._parameters["weight"]
    return x if weight is None else x.to(weight.dtype)


class GeometryEmbedding(nn.Module):
    """G = ReLU(FC(f)), one vector per pair of regions (NG-SAN, Eq. 9), shared by all heads."""

    def __init__(self, geometry_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(4, geometry_dim)

    def forward(
        self, boxes: Float[Tensor, "B N 4"], mask: Bool[Tensor, "B N"] | None = None
    ) -> Float[Tensor, "B N N G"]:
        """Return G of all pairs; entries of padded regions are finite."""
        return F.relu(self.linear(as_weights_of(self.linear, relative_geometry(boxes, mask))))


def geometric_biases(geometry: str) -> tuple[Bias, ...]:
    """Return the biases that a geometry names, such as "query+key"; empty where it names others."""
    parts = geometry.split("+")
    return tuple(bias for bias in _BIASES if bias in parts) if set(parts) <= set(_BIASES) else ()


class GeometryBias(nn.Module):
    """phi(Q', K', G), the geometric bias of the scores: a sum of any of the paper's three forms.

    content: ReLU(w_g . G_ij), the same for all contents (Eq. 11); query: Q'_i . G_ij (Eq. 12); key: K'_j . G_ij
    (Eq. 13). Q' and K' are projections of the attention's inputs, `geometry_dim` channels per head.
    """

    def __init__(self, options: Any, dim: int, num_heads: int, head_dim: int) -> None:
        """Create the maps of the biases that an AttentionConfig names.

        Its geometry_scaled takes phi out of the division by sqrt(d_k), the other form of Eq. 10; d_k is `head_dim`.
        """
        super().__init__()
        self.num_heads, geometry_dim, kinds = num_heads, options.geometry_dim, options.biases
        self.factor = 1.0 if options.geometry_scaled else head_dim**0.5
        self.weight = nn.Parameter(torch.empty(num_heads, geometry_dim)) if "content" in kinds else None
        self.query = nn.Linear(dim, num_heads * geometry_dim) if "query" in kinds else None
        self.key = nn.Linear(dim, num_heads * geometry_dim) if "key" in kinds else None
        if self.weight is not None:
            nn.init.xavier_uniform_(self.weight)

    def forward(
        self, query: Float[Tensor, "B N D"], key: Float[Tensor, "B N D"], geometry: Geometry
    ) -> Float[Tensor, "B H N N"]:
        """Return the bias of every pair and head, to be added to Q K^T before the scaling (Eq. 10)."""
        pairs = geometry.embedded
        assert pairs is not None
        terms: list[Tensor] = []
        if self.weight is not None:
            terms.append(F.relu(torch.einsum("hg,bijg->bhij", self.weight, pairs)))
        if self.query is not None:
            q = self.query(query).unflatten(-1, (self.num_heads, -1))
            terms.append(torch.einsum("bihg,bijg->bhij", q, pairs))
        if self.key is not None:
            k = self.key(key).unflatten(-1, (self.num_heads, -1))
            terms.append(torch.einsum("bjhg,bijg->bhij", k, pairs))
        bias = torch.stack(terms).sum(dim=0) if len(terms) > 1 else terms[0]
        return bias if self.factor == 1.0 else bias * self.factor


def sinusoidal_box_embedding(relative: Float[Tensor, "B N N 4"], dim: int) -> Float[Tensor, "B N N dim"]:
    """Return sinusoids of the four features of each pair, `dim / 4` channels each (Herdade et al., 2019, section 3.3).

    The features are multiplied by 100 and the wavelengths rise to 1000 * 2 pi, as in their code.
    """
    return sinusoids(relative * 100.0, dim // 4, base=1000.0).flatten(-2)


class RelativeBias(nn.Module):
    """log(ReLU(W_g E)) of the sinusoidal embedding E: multiplies each attention weight by a learned factor.

    Herdade et al., 2019, Eqs. 6 and 7; "RelPE" in MD-SAN, Table VII.
    """

    def __init__(self, options: Any, dim: int, num_heads: int, head_dim: int) -> None:  # noqa: ARG002
        """Create W_g; the bias is multiplied by the root of `head_dim`, a query's channels, to undo the scaling."""
        super().__init__()
        self.factor = head_dim**0.5
        self.linear = nn.Linear(options.geometry_dim, num_heads)

    def forward(
        self, query: Float[Tensor, "B N D"], key: Float[Tensor, "B N D"], geometry: Geometry
    ) -> Float[Tensor, "B H N N"]:
        """Return the bias of every pair and head; query and key are not read."""
        del query, key
        assert geometry.embedded is not None
        factors = F.relu(self.linear(as_weights_of(self.linear, geometry.embedded))).movedim(-1, 1)
        return factors.clamp(min=_MIN_FACTOR).log() * self.factor


def absolute_geometry(boxes: Float[Tensor, "B N 4"], dim: int) -> Float[Tensor, "B N dim"]:
    """Return sinusoids of center, width and height, `dim / 4` channels each ("absolute" of NG-SAN's Table 4).

    Added to the regions after the input layer; no parameters. Wavelengths as in `sinusoids`.
    """
    boxes = at_least_float32(boxes)
    low, high = boxes[..., :2], boxes[..., 2:]
    values = torch.cat([(low + high) / 2, high - low], dim=-1)
    return sinusoids(values, dim // 4).flatten(-2)


def sine_positions(boxes: Float[Tensor, "B N 4"], dim: int) -> Float[Tensor, "B N dim"]:
    """Return DETR's sine encoding of positions: half the channels for y, half for x ("AbsPE" of MD-SAN's Table VII).

    The positions are the bottom and right edges in 0..1, times 2 pi. For the cells of an H x W grid these are DETR's
    (row + 1) / H and (column + 1) / W (Carion et al., ECCV 2020, normalized). No parameters.
    """
    return sinusoids(at_least_float32(boxes)[..., [3, 2]] * (2 * math.pi), dim // 2).flatten(-2)


BOX_EMBEDDINGS = {"absolute": absolute_geometry, "sine": sine_positions}
"""Geometries that are added to the regions, by name: functions of the boxes and the number of channels."""


GEOMETRIES: Registry[Callable[..., nn.Module | None]] = Registry(
    "geometry",
    {
        **dict.fromkeys(("none", *BOX_EMBEDDINGS), lambda *_: None),  # the scores do not read them
        "relative": RelativeBias,
        **dict.fromkeys(_BIASES, GeometryBias),
    },
)
"""Geometries by name: a function of `(options, dim, num_heads, head_dim)` that returns the attention's `score_bias`,
a module called with queries, keys and `Geometry`. For a geometry of a user's own `Geometry.embedded` holds the features
of `relative_geometry`, `(B, N, N, 4)`."""


def sinusoids(positions: Float[Tensor, "*shape"], dim: int, base: float = 10000.0) -> Float[Tensor, "*shape dim"]:
    """Return the Transformer's positional encodings: interleaved sine and cosine, wavelengths 2 pi to base * 2 pi.

    They are float32 at least: half precision rounds an angle of 100 by up to 0.25.
    """
    positions = at_least_float32(positions)
    frequency = base ** (-torch.arange(0, dim, 2, device=positions.device, dtype=positions.dtype) / dim)
    angle = positions.unsqueeze(-1) * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)
