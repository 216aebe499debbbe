"""Options of the self-attention among regions, the modules built from them, and the geometry that they read.

An attention or a geometry of a user's own joins those here by `legenda.register_attention` and `register_geometry`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from torch import Tensor, nn

from legenda.attention.distance import (
    DISTANCES,
    WINDOWS,
    DistanceInit,
    DistanceRescale,
    Scaling,
    local_windows,
    pair_distances,
)
from legenda.attention.geometry import (
    BOX_EMBEDDINGS,
    GEOMETRIES,
    Bias,
    Geometry,
    GeometryEmbedding,
    geometric_biases,
    grid_positions,
    relative_geometry,
    sinusoidal_box_embedding,
)
from legenda.attention.memory import MemoryAttention
from legenda.attention.multi_branch import Branch, MultiBranchAttention
from legenda.attention.multi_head import MultiHeadAttention
from legenda.attention.normalization import NORMS
from legenda.attention.x_linear import XLinearAttention
from legenda.config import Config, Count, NonNegativeCount, PositiveInt, Probability
from legenda.errors import ConfigError
from legenda.regions import Regions
from legenda.registry import Registry


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
    head_dim, create_norm = options.query_head_dim or width // heads, NORMS.get(options.norm)
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
        query_norm=create_norm(heads * head_dim) if "q" in options.norm_on else None,
        key_norm=create_norm(heads * head_dim) if "k" in options.norm_on else None,
        **_terms_of_scores(options, dim, heads, head_dim),
    )
    if not output and width != expected:
        attention.output = nn.Linear(width, expected)
    return attention


def create_x_linear(
    options: AttentionConfig, dim: int, num_heads: int, *, dropout: float, inner_dim: int | None, **_: bool
) -> XLinearAttention:
    """Return X-Linear attention; it has no projection after its heads, which are concatenated."""
    if inner_dim not in (None, dim):
        raise ConfigError(f"attention='x_linear' is as wide as the model, {dim} channels, not {inner_dim}")
    terms = _terms_of_scores(options, dim, num_heads, dim // num_heads)
    return XLinearAttention(dim, num_heads, dropout=dropout, **terms)


def create_memory(
    options: AttentionConfig, dim: int, num_heads: int, *, dropout: float, inner_dim: int | None, **how: bool
) -> MemoryAttention:
    """Return dot-product attention with memory slots; it is as wide as the model, with an output layer and biases."""
    if inner_dim not in (None, dim) or not all(how.values()):  # output and bias
        raise ConfigError("attention='memory' belongs to a Transformer, whose attention is as wide as the model")
    return MemoryAttention(dim, num_heads, num_slots=options.memory_slots, dropout=dropout)


def _terms_of_scores(options: AttentionConfig, dim: int, num_heads: int, head_dim: int) -> dict[str, Any]:
    create_bias, rescale = GEOMETRIES.get(options.biases[0] if options.biases else options.geometry), None
    bias = create_bias(options, dim, num_heads, head_dim)
    if options.distance != "none":
        rescale = DistanceRescale(num_heads, options.distance_scaling, options.distance_init)
    return {"score_bias": bias, "rescale": rescale}


ATTENTIONS: Registry[Callable[..., nn.Module]] = Registry(
    "attention", {"multi_head": create_multi_head, "x_linear": create_x_linear, "memory": create_memory}
)
"""Attentions among regions by name: functions of `(options, dim, num_heads, *, dropout, inner_dim, output, bias)`, as
in `build_attention`, that return a module with the call of `MultiHeadAttention`."""


class AttentionConfig(Config):
    """Options of the self-attention among regions; every encoder with one takes them, in any combination."""

    attention: Annotated[str, ATTENTIONS] = "multi_head"
    """multi_head (dot products), x_linear (no norm, no head options and no other width), memory (the same without
    relative geometry, distances and windows), or one that is registered."""
    memory_slots: PositiveInt = 40
    """Learned keys and values besides the regions', with attention="memory" (Cornia et al., CVPR 2020)."""
    norm: Annotated[str, NORMS] = "none"
    """Normalization inside the encoder's attention (NG-SAN, Table 2)."""
    norm_on: Literal["q", "k", "qk"] = "q"
    """Whether it normalizes queries, keys or both (NG-SAN, Table 3)."""
    geometry: str = "none"
    """Geometry of the encoder: none, absolute, sine and relative (MD-SAN, Table VII), or content, query, key and sums
    of them, as in "query+key" (NG-SAN, Table 4)."""
    geometry_dim: PositiveInt = 64
    """Channels of the geometry embedding, and of Q' and K' in each head."""
    geometry_per_layer: bool = False
    """A geometry embedding for each layer instead of one for all."""
    geometry_scaled: bool = True
    """The geometric bias is divided by sqrt(d_k) like Q K^T; False leaves it outside."""
    distance: Annotated[str, DISTANCES] = "none"
    """Distance by which the scores are rescaled (MD-SAN, Eq. 6 and Table VII)."""
    distance_scaling: Scaling = "sigmoid"
    """Factor of a head as a function of the distance (MD-SAN, Eqs. 7, 17 and 18, Table VIII)."""
    distance_init: DistanceInit = "xavier"
    """Initialization of this function: as in the released training, or w = 1 and v = 0."""
    grid_size: Count = 7
    """Cells along each side of an image whose regions are no grid; distances and windows are in cells."""
    window: Annotated[str, WINDOWS] = "none"
    """Local windows of attention (MD-SAN, Table IX)."""
    window_size: Count = 4
    """Side of a window or of a block, in cells."""
    window_halo: NonNegativeCount = 2
    """Cells around a block that its regions also attend to ("halo")."""
    branches: Count = 1
    """Attentions that are averaged (MD-SAN, Eq. 9)."""
    drop_branch: Probability = 0.0
    """Probability of dropping each of several branches in training (MD-SAN, Eqs. 10 and 11)."""
    branch_layers: tuple[Count, ...] = ()
    """Layers, counted from 1, that have several branches (MD-SAN, Table XII); empty for all."""
    branch_residual: bool | None = None
    """A residual connection and layer normalization inside each branch; None for the default of `variant`."""
    attention_heads: Count | None = None
    """Heads of this attention; None for num_heads (MD-SAN, Table X)."""
    head_dim: PositiveInt | None = None
    """Channels of each head; None divides the width among the heads."""
    query_head_dim: PositiveInt | None = None
    """Channels of queries and keys in each head where they differ from the values' (MD-SAN, Table X, "ExtendQK")."""
    talking_heads: bool = False
    """Linear maps over the heads before and after the softmax (MD-SAN, Table X)."""
    drop_head: Probability = 0.0
    """Probability of zeroing each head in training: drop branch with heads as branches (MD-SAN, Table XI)."""

    def check(self, dim: int) -> None:
        """Raise ConfigError where the options contradict each other or the encoder's number of channels, `dim`."""
        if self.geometry not in GEOMETRIES and not self.biases:
            known = ", ".join(GEOMETRIES)
            raise ConfigError(f"geometry={self.geometry!r} is unknown; choose from {known}, or a sum such as query+key")
        if self.geometry in BOX_EMBEDDINGS and dim % 8:
            raise ConfigError(f"geometry={self.geometry!r} needs a dim that is a multiple of 8, not {dim}")
        if self.geometry == "relative" and self.geometry_dim % 8:
            raise ConfigError(f"geometry='relative' needs a multiple of 8 as geometry_dim, not {self.geometry_dim}")
        changed = (self.norm != "none", self.attention_heads, self.head_dim, self.query_head_dim, self.talking_heads)
        if self.attention in ("x_linear", "memory") and (any(changed) or self.drop_head):
            raise ConfigError(
                f"attention={self.attention!r} takes no norm, no talking heads, no sizes of heads; leave them out"
            )
        pairs = self.geometry not in ("none", *BOX_EMBEDDINGS) or not self.distance == self.window == "none"
        if self.attention == "memory" and pairs:
            raise ConfigError("attention='memory' takes no geometry of pairs, distance or window; leave them out")
        if self.attention_heads and not self.head_dim and dim % self.attention_heads:
            raise ConfigError(
                f"dim={dim} must be a multiple of attention_heads={self.attention_heads}, or set head_dim"
            )

    @property
    def biases(self) -> tuple[Bias, ...]:
        """The geometric biases of `geometry`; empty for others."""
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

    def build_attention(
        self,
        dim: int,
        num_heads: int,
        *,
        layer: int = 0,
        dropout: float,
        inner_dim: int | None = None,
        output: bool = True,
        bias: bool = True,
    ) -> nn.Module:
        """Return a new attention among regions for one layer, counted from 0.

        inner_dim, output, bias: as in MultiHeadAttention; they set the width of the output whatever the sizes of the
        heads. Branches are dropped in training only where there are several.
        """
        width = dim if inner_dim is None or output else inner_dim
        count = self.branches_of(layer)
        build = ATTENTIONS.get(self.attention)
        attentions = [
            build(self, dim, num_heads, dropout=dropout, inner_dim=inner_dim, output=output, bias=bias)
            for _ in range(count)
        ]
        if self.branch_norm:
            if width != dim:
                raise ConfigError(f"branch_residual needs attention as wide as the model, {dim} channels, not {width}")
            branches = [Branch(attention, dim, dropout) for attention in attentions]
            return MultiBranchAttention(branches, width, self.drop_branch if count > 1 else 0.0)
        return attentions[0] if count == 1 else MultiBranchAttention(attentions, width, self.drop_branch)


class PairGeometry(nn.Module):
    """The geometry of each pair of regions for the attention of each of L layers.

    Distances and windows are in cells, `grid_size` along each side of an image that is no grid.
    """

    def __init__(self, config: AttentionConfig, num_layers: int) -> None:
        """Create the geometry embeddings: one for each layer, or one for all, where a bias of the attention has any."""
        super().__init__()
        self.config, self.num_layers = config, num_layers
        self.distance, self.windows = DISTANCES.get(config.distance), WINDOWS.get(config.window)
        count = (num_layers if config.geometry_per_layer else 1) if config.biases else 0
        self.embeddings = nn.ModuleList(GeometryEmbedding(config.geometry_dim) for _ in range(count))

    def forward(self, regions: Regions) -> list[Geometry]:
        """Return one Geometry for each layer, without what the attention does not read."""
        config, boxes, mask = self.config, regions.boxes, regions.mask_or_ones
        if boxes is None or not config.needs_boxes:
            return [Geometry()] * self.num_layers
        embedded: list[Tensor] = [embed(boxes, mask) for embed in self.embeddings]
        if not embedded and config.geometry not in ("none", *BOX_EMBEDDINGS):
            features = relative_geometry(boxes, mask)
            relative = config.geometry == "relative"
            embedded = [sinusoidal_box_embedding(features, config.geometry_dim) if relative else features]
        positions = grid_positions(boxes, mask, config.grid_size)
        distance = pair_distances(positions, self.distance)
        windows = local_windows(self.windows, positions, mask, size=config.window_size, halo=config.window_halo)
        return [
            Geometry(embedded[layer % len(embedded)] if embedded else None, distance, windows[layer % 2])
            for layer in range(self.num_layers)
        ]
