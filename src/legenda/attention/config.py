"""Which attention an encoder's regions use among themselves: its options, and the registries of what they name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from torch import nn

from legenda.attention.distance import Distance, DistanceInit, Scaling
from legenda.attention.geometry import BIASES, Bias, geometric_biases
from legenda.attention.normalization import Norm, NormOn
from legenda.attention.windows import Window
from legenda.errors import ConfigError
from legenda.plugins import Registry

ATTENTIONS: Registry[Callable[..., nn.Module]] = Registry(
    "attention",
    {
        "multi_head": "legenda.attention.builders:create_multi_head",
        "x_linear": "legenda.attention.builders:create_x_linear",
    },
)
"""Attentions among regions by name: a function of `(options, dim, num_heads, *, dropout, inner_dim, output, bias)` as
`create_self_attention` has them, that returns a module called as `MultiHeadAttention` is."""

GEOMETRIES: Registry[Callable[..., nn.Module | None]] = Registry(
    "geometry",
    {
        "none": "legenda.attention.builders:no_bias",
        "absolute": "legenda.attention.builders:no_bias",
        "relative": "legenda.attention.builders:create_relative_bias",
        **dict.fromkeys(BIASES, "legenda.attention.builders:create_geometry_bias"),
    },
)
"""Geometries by name: a function of `(options, dim, num_heads, head_dim)` that returns the attention's `score_bias`,
a module called with queries, keys and `Geometry`. For a geometry of a user's own `Geometry.embedded` holds the features
of `relative_geometry`, `(B, N, N, 4)`."""


@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """The self-attention among regions; every encoder that has one takes these options, in any combination."""

    attention: Annotated[str, ATTENTIONS] = "multi_head"
    """multi_head (dot products), x_linear (no norm, no head options and no other width), or one that is registered."""
    norm: Norm = "none"
    """Normalisation inside the encoder's attention (NG-SAN, Table 2)."""
    norm_on: NormOn = "q"
    """What it normalises: queries, keys or both (NG-SAN, Table 3)."""
    geometry: str = "none"
    """Geometry of the encoder: none, absolute, relative (MD-SAN, Table VII), or content, query, key and sums of them,
    as in "query+key" (NG-SAN, Table 4)."""
    geometry_dim: int = 64
    """Channels of the geometry embedding, and of Q' and K' in each head."""
    geometry_per_layer: bool = False
    """A geometry embedding for each layer instead of one for all."""
    geometry_scaled: bool = True
    """The geometric bias is divided by sqrt(d_k) like Q K^T; False leaves it outside."""
    distance: Distance = "none"
    """The distance that rescales the scores (MD-SAN, Eq. 6 and Table VII); none leaves them."""
    distance_scaling: Scaling = "sigmoid"
    """How a head's factor depends on the distance (MD-SAN, Eqs. 7, 17 and 18, Table VIII)."""
    distance_init: DistanceInit = "xavier"
    """How the numbers of this function begin: as in the released code's training, or w = 1 and v = 0."""
    grid_size: int = 7
    """Distances and windows count cells; regions that are no grid lie in a picture of so many cells each way."""
    window: Window = "none"
    """Local windows that regions look at (MD-SAN, Table IX)."""
    window_size: int = 4
    """Cells of a window's side, or of a block's side."""
    window_halo: int = 2
    """Cells around a block that its regions also see ("halo")."""
    branches: int = 1
    """Attentions whose mean is taken (MD-SAN, Eq. 9)."""
    drop_branch: float = 0.0
    """Probability that training leaves out each of several branches (MD-SAN, Eqs. 10 and 11)."""
    branch_layers: tuple[int, ...] = ()
    """Layers, counted from 1, that have several branches (MD-SAN, Table XII); empty for all."""
    branch_residual: bool | None = None
    """A residual connection and a layer normalisation inside each branch; None for what the model's reading says."""
    attention_heads: int | None = None
    """Heads of this attention; None for num_heads (MD-SAN, Table X)."""
    head_dim: int | None = None
    """Channels of each head; None shares the width out to the heads."""
    query_head_dim: int | None = None
    """Channels of queries and keys in each head where they differ from the values' (MD-SAN, Table X, "ExtendQK")."""
    talking_heads: bool = False
    """Linear maps over the heads before and after the softmax (MD-SAN, Table X)."""
    drop_head: float = 0.0
    """Probability that training erases each head: the drop branch technique where heads are the branches (MD-SAN,
    Table XI)."""

    def check(self, dim: int) -> None:
        """Raises ConfigError where the options contradict each other or an encoder `dim` channels wide."""
        if self.geometry not in GEOMETRIES and not self.biases:
            known = ", ".join(GEOMETRIES)
            raise ConfigError(f"geometry={self.geometry!r} is unknown; choose from {known}, or a sum such as query+key")
        if self.geometry == "absolute" and dim % 8:
            raise ConfigError(f"geometry='absolute' needs a dim that is a multiple of 8, not {dim}")
        if self.geometry == "relative" and self.geometry_dim % 8:
            raise ConfigError(f"geometry='relative' needs a multiple of 8 as geometry_dim, not {self.geometry_dim}")
        for name in ("grid_size", "window_size", "branches", "attention_heads", "head_dim", "query_head_dim"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")
        changed = (self.norm != "none", self.attention_heads, self.head_dim, self.query_head_dim, self.talking_heads)
        if self.attention == "x_linear" and (any(changed) or self.drop_head):
            raise ConfigError("attention='x_linear' takes no norm, no talking heads, no sizes of heads; leave them out")
        if self.window_halo < 0:
            raise ConfigError(f"window_halo must be 0 or more, not {self.window_halo}")
        for name in ("drop_branch", "drop_head"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must lie in 0..1, below 1")
        if self.branch_layers and min(self.branch_layers) < 1:
            raise ConfigError(f"branch_layers={self.branch_layers} must name layers from 1 on")
        if self.attention_heads and not self.head_dim and dim % self.attention_heads:
            raise ConfigError(
                f"dim={dim} must be a multiple of attention_heads={self.attention_heads}, or set head_dim"
            )

    @property
    def biases(self) -> tuple[Bias, ...]:
        """The geometric biases that `geometry` names; empty for none, absolute and relative."""
        return geometric_biases(self.geometry)

    @property
    def needs_boxes(self) -> bool:
        """Whether any of it reads where the regions lie."""
        return not self.geometry == self.distance == self.window == "none"

    @property
    def branch_norm(self) -> bool:
        """Whether each branch has a residual connection and a layer normalisation of its own."""
        return bool(self.branch_residual)

    def branches_of(self, layer: int) -> int:
        """Branches of a layer, counted from 0."""
        return self.branches if not self.branch_layers or layer + 1 in self.branch_layers else 1
