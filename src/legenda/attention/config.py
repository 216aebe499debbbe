"""Options of the self-attention among regions, and the registered attentions and geometries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from torch import nn

from legenda.attention.distance import Distance, DistanceInit, DistanceRescale, Scaling
from legenda.attention.geometry import BIASES, Bias, GeometryBias, RelativeBias, geometric_biases
from legenda.attention.multi_head import MultiHeadAttention
from legenda.attention.normalization import Norm, NormOn, create_norm
from legenda.attention.windows import Window
from legenda.attention.x_linear import XLinearAttention
from legenda.errors import ConfigError
from legenda.plugins import Registry

ATTENTIONS: Registry[Callable[..., nn.Module]] = Registry(
    "attention",
    {
        "multi_head": "legenda.attention.config:create_multi_head",
        "x_linear": "legenda.attention.config:create_x_linear",
    },
)
"""Attentions among regions by name: functions of `(options, dim, num_heads, *, dropout, inner_dim, output, bias)`, as
in `create_self_attention`, that return a module with the call of `MultiHeadAttention`."""

GEOMETRIES: Registry[Callable[..., nn.Module | None]] = Registry(
    "geometry",
    {
        "none": "legenda.attention.config:no_bias",
        "absolute": "legenda.attention.config:no_bias",
        "relative": "legenda.attention.config:create_relative_bias",
        **dict.fromkeys(BIASES, "legenda.attention.config:create_geometry_bias"),
    },
)
"""Geometries by name: a function of `(options, dim, num_heads, head_dim)` that returns the attention's `score_bias`,
a module called with queries, keys and `Geometry`. For a geometry of a user's own `Geometry.embedded` holds the features
of `relative_geometry`, `(B, N, N, 4)`."""


@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Options of the self-attention among regions; every encoder with one takes them, in any combination."""

    attention: Annotated[str, ATTENTIONS] = "multi_head"
    """multi_head (dot products), x_linear (no norm, no head options and no other width), or one that is registered."""
    norm: Norm = "none"
    """Normalization inside the encoder's attention (NG-SAN, Table 2)."""
    norm_on: NormOn = "q"
    """Whether it normalizes queries, keys or both (NG-SAN, Table 3)."""
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
    """Distance by which the scores are rescaled (MD-SAN, Eq. 6 and Table VII)."""
    distance_scaling: Scaling = "sigmoid"
    """Factor of a head as a function of the distance (MD-SAN, Eqs. 7, 17 and 18, Table VIII)."""
    distance_init: DistanceInit = "xavier"
    """Initialization of this function: as in the released training, or w = 1 and v = 0."""
    grid_size: int = 7
    """Cells along each side of an image whose regions are no grid; distances and windows are in cells."""
    window: Window = "none"
    """Local windows of attention (MD-SAN, Table IX)."""
    window_size: int = 4
    """Side of a window or of a block, in cells."""
    window_halo: int = 2
    """Cells around a block that its regions also attend to ("halo")."""
    branches: int = 1
    """Attentions that are averaged (MD-SAN, Eq. 9)."""
    drop_branch: float = 0.0
    """Probability of dropping each of several branches in training (MD-SAN, Eqs. 10 and 11)."""
    branch_layers: tuple[int, ...] = ()
    """Layers, counted from 1, that have several branches (MD-SAN, Table XII); empty for all."""
    branch_residual: bool | None = None
    """A residual connection and layer normalization inside each branch; None for the default of `reading`."""
    attention_heads: int | None = None
    """Heads of this attention; None for num_heads (MD-SAN, Table X)."""
    head_dim: int | None = None
    """Channels of each head; None divides the width among the heads."""
    query_head_dim: int | None = None
    """Channels of queries and keys in each head where they differ from the values' (MD-SAN, Table X, "ExtendQK")."""
    talking_heads: bool = False
    """Linear maps over the heads before and after the softmax (MD-SAN, Table X)."""
    drop_head: float = 0.0
    """Probability of zeroing each head in training: drop branch with heads as branches (MD-SAN, Table XI)."""

    def check(self, dim: int) -> None:
        """Raise ConfigError where the options contradict each other or the encoder's number of channels, `dim`."""
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
        """The geometric biases of `geometry`; empty for none, absolute and relative."""
        return geometric_biases(self.geometry)

    @property
    def needs_boxes(self) -> bool:
        """Whether any option reads the boxes."""
        return not self.geometry == self.distance == self.window == "none"

    @property
    def branch_norm(self) -> bool:
        """Whether each branch has a residual connection and layer normalization."""
        return bool(self.branch_residual)

    def branches_of(self, layer: int) -> int:
        """Return the number of branches of a layer, counted from 0."""
        return self.branches if not self.branch_layers or layer + 1 in self.branch_layers else 1


def create_multi_head(
    options: AttentionConfig,
    dim: int,
    num_heads: int,
    *,
    dropout: float,
    inner_dim: int | None,
    output: bool,
    bias: bool,
) -> MultiHeadAttention:
    """Return scaled dot-product attention in heads, with the norms, biases and sizes that the options name."""
    heads = options.attention_heads or num_heads
    expected = dim if inner_dim is None else inner_dim
    width = heads * options.head_dim if options.head_dim else expected
    head_dim = options.query_head_dim or width // heads
    attention = MultiHeadAttention(
        dim,
        heads,
        dropout=dropout,
        inner_dim=width,
        query_dim=heads * head_dim,
        output=output,
        bias=bias,
        talking=options.talking_heads,
        drop_head=options.drop_head,
        query_norm=create_norm(options.norm, heads * head_dim) if "q" in options.norm_on else None,
        key_norm=create_norm(options.norm, heads * head_dim) if "k" in options.norm_on else None,
        score_bias=_create_bias(options, dim, heads, head_dim),
        rescale=_create_rescale(options, heads),
    )
    if not output and width != expected:
        attention.output = nn.Linear(width, expected)
    return attention


def create_x_linear(
    options: AttentionConfig,
    dim: int,
    num_heads: int,
    *,
    dropout: float,
    inner_dim: int | None,
    output: bool,  # noqa: ARG001
    bias: bool,  # noqa: ARG001
) -> XLinearAttention:
    """Return X-Linear attention; it has no projection after its heads, which are concatenated."""
    if inner_dim not in (None, dim):
        raise ConfigError(f"attention='x_linear' is as wide as the model, {dim} channels, not {inner_dim}")
    return XLinearAttention(
        dim,
        num_heads,
        dropout=dropout,
        score_bias=_create_bias(options, dim, num_heads, dim // num_heads),
        rescale=_create_rescale(options, num_heads),
    )


def _create_rescale(options: AttentionConfig, num_heads: int) -> nn.Module | None:
    if options.distance == "none":
        return None
    return DistanceRescale(num_heads, options.distance_scaling, options.distance_init)


def _create_bias(options: AttentionConfig, dim: int, num_heads: int, head_dim: int) -> nn.Module | None:
    create = GEOMETRIES.get(options.biases[0] if options.biases else options.geometry)
    return create(options, dim, num_heads, head_dim)


def no_bias(options: AttentionConfig, dim: int, num_heads: int, head_dim: int) -> None:
    """Return no bias, for geometries that the scores do not read."""


def create_relative_bias(options: AttentionConfig, dim: int, num_heads: int, head_dim: int) -> RelativeBias:  # noqa: ARG001
    """Return the bias of relative position embedding (MD-SAN, Table VII)."""
    return RelativeBias(num_heads, options.geometry_dim, head_dim=head_dim)


def create_geometry_bias(options: AttentionConfig, dim: int, num_heads: int, head_dim: int) -> GeometryBias:
    """Return NG-SAN's bias, or the sum of several (NG-SAN, Table 4)."""
    return GeometryBias(
        dim, num_heads, options.geometry_dim, options.biases, head_dim=head_dim, scaled=options.geometry_scaled
    )
