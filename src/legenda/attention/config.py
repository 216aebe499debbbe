"""Which attention an encoder's regions use among themselves: its options, and the modules they name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from legenda.attention.distance import Distance, DistanceRescale, Scaling, Start, pair_distances
from legenda.attention.geometry import (
    BIASES,
    Bias,
    Geometry,
    GeometryBias,
    GeometryEmbedding,
    RelativeBias,
    cell_places,
    relative_geometry,
    relative_waves,
)
from legenda.attention.multi_branch import Branch, Branches
from legenda.attention.multi_head import MultiHeadAttention
from legenda.attention.normalization import Norm, NormOn, create_norm
from legenda.attention.windows import Window, local_windows
from legenda.attention.x_linear import XLinearAttention
from legenda.errors import UserError
from legenda.regions import Regions


@dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """The self-attention among regions; every encoder that has one takes these options, in any combination."""

    attention: Literal["multi_head", "x_linear"] = "multi_head"
    """Dot products of heads, or X-Linear attention, which takes no norm, no head options and no other width."""
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
    distance_start: Start = "xavier"
    """How the numbers of this function begin: as in the released code's training, or w = 1 and v = 0."""
    cells: int = 7
    """Distances and windows count cells; regions that are no grid lie in a picture of so many cells each way."""
    window: Window = "none"
    """Local windows that regions look at (MD-SAN, Table IX)."""
    window_size: int = 4
    """Cells of a window's side, or of a block's side."""
    window_halo: int = 2
    """Cells around a block that its regions also see ("halo")."""
    branches: int = 1
    """Attentions whose mean is taken (MD-SAN, Eq. 9)."""
    branch_drop: float = 0.0
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
    head_drop: float = 0.0
    """Probability that training erases each head: the drop branch technique where heads are the branches (MD-SAN,
    Table XI)."""

    def check(self, dim: int) -> None:
        """Raises UserError where the options contradict each other or an encoder `dim` channels wide."""
        if self.geometry not in ("none", "absolute", "relative") and not self.biases:
            known = ", ".join(("none", "absolute", "relative", *BIASES))
            raise UserError(f"geometry={self.geometry!r} is unknown; choose from {known}, or a sum such as query+key")
        if self.geometry == "absolute" and dim % 8:
            raise UserError(f"geometry='absolute' needs a dim that is a multiple of 8, not {dim}")
        if self.geometry == "relative" and self.geometry_dim % 8:
            raise UserError(f"geometry='relative' needs a multiple of 8 as geometry_dim, not {self.geometry_dim}")
        for name in ("cells", "window_size", "branches", "attention_heads", "head_dim", "query_head_dim"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}")
        changed = (self.norm != "none", self.attention_heads, self.head_dim, self.query_head_dim, self.talking_heads)
        if self.attention == "x_linear" and (any(changed) or self.head_drop):
            raise UserError("attention='x_linear' takes no norm, no talking heads, no sizes of heads; leave them out")
        if self.window_halo < 0:
            raise UserError(f"window_halo must be 0 or more, not {self.window_halo}")
        for name in ("branch_drop", "head_drop"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)} must lie in 0..1, below 1")
        if self.branch_layers and min(self.branch_layers) < 1:
            raise UserError(f"branch_layers={self.branch_layers} must name layers from 1 on")
        if self.attention_heads and not self.head_dim and dim % self.attention_heads:
            raise UserError(f"dim={dim} must be a multiple of attention_heads={self.attention_heads}, or set head_dim")

    @property
    def biases(self) -> tuple[Bias, ...]:
        """The geometric biases that `geometry` names; empty for none, absolute and relative."""
        parts = self.geometry.split("+")
        return tuple(bias for bias in BIASES if bias in parts) if set(parts) <= set(BIASES) else ()

    @property
    def needs_boxes(self) -> bool:
        """Whether any of it reads where the regions lie."""
        return not self.geometry == self.distance == self.window == "none"

    @property
    def normed_branches(self) -> bool:
        """Whether each branch has a residual connection and a layer normalisation of its own."""
        return bool(self.branch_residual)

    def branches_of(self, layer: int) -> int:
        """Branches of a layer, counted from 0."""
        return self.branches if not self.branch_layers or layer + 1 in self.branch_layers else 1


def create_self_attention(
    options: AttentionOptions,
    dim: int,
    num_heads: int,
    *,
    layer: int = 0,
    dropout: float,
    inner_dim: int | None = None,
    output: bool = True,
    bias: bool = True,
) -> MultiHeadAttention | XLinearAttention | Branches:
    """The attention among regions of one layer, counted from 0, as the options name it.

    inner_dim, output, bias: as in MultiHeadAttention; what comes out is as wide as they say, whatever the heads are. Of
    several branches some are left out in training; a single one never is.
    """
    width = dim if inner_dim is None or output else inner_dim
    count = options.branches_of(layer)
    attentions = [
        _create_attention(options, dim, num_heads, dropout=dropout, inner_dim=inner_dim, output=output, bias=bias)
        for _ in range(count)
    ]
    if options.normed_branches:
        if width != dim:
            raise UserError(f"branch_residual needs attention as wide as the model, {dim} channels, not {width}")
        branches = [Branch(attention, dim, dropout) for attention in attentions]
        return Branches(branches, width, options.branch_drop if count > 1 else 0.0)
    return attentions[0] if count == 1 else Branches(attentions, width, options.branch_drop)


def _create_attention(
    options: AttentionOptions,
    dim: int,
    num_heads: int,
    *,
    dropout: float,
    inner_dim: int | None,
    output: bool,
    bias: bool,
) -> MultiHeadAttention | XLinearAttention:
    """A single branch of `create_self_attention`."""
    if options.attention == "x_linear":
        return _create_x_linear(options, dim, num_heads, dropout=dropout, inner_dim=inner_dim)
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
        head_drop=options.head_drop,
        query_norm=create_norm(options.norm, heads * head_dim) if "q" in options.norm_on else None,
        key_norm=create_norm(options.norm, heads * head_dim) if "k" in options.norm_on else None,
        score_bias=_create_bias(options, dim, heads, head_dim),
        rescale=_create_rescale(options, heads),
    )
    if not output and width != expected:
        attention.output = nn.Linear(width, expected)
    return attention


def _create_x_linear(
    options: AttentionOptions, dim: int, num_heads: int, *, dropout: float, inner_dim: int | None
) -> XLinearAttention:
    """X-Linear attention; it has no projection after its heads, which come out side by side."""
    if inner_dim not in (None, dim):
        raise UserError(f"attention='x_linear' is as wide as the model, {dim} channels, not {inner_dim}")
    return XLinearAttention(
        dim,
        num_heads,
        dropout=dropout,
        score_bias=_create_bias(options, dim, num_heads, dim // num_heads),
        rescale=_create_rescale(options, num_heads),
    )


def _create_rescale(options: AttentionOptions, num_heads: int) -> nn.Module | None:
    if options.distance == "none":
        return None
    return DistanceRescale(num_heads, options.distance_scaling, options.distance_start)


def _create_bias(options: AttentionOptions, dim: int, num_heads: int, head_dim: int) -> nn.Module | None:
    if options.geometry == "relative":
        return RelativeBias(num_heads, options.geometry_dim, head_dim=head_dim)
    if options.biases:
        return GeometryBias(
            dim,
            num_heads,
            options.geometry_dim,
            options.biases,
            head_dim=head_dim,
            scaled=options.geometry_scaled,
        )
    return None


class PairGeometry(nn.Module):
    """What each layer's attention reads about where regions lie, computed once per image."""

    def __init__(self, options: AttentionOptions, num_layers: int) -> None:
        super().__init__()
        self.options = options
        self.num_layers = num_layers
        embeddings = (num_layers if options.geometry_per_layer else 1) if options.biases else 0
        self.embeddings = nn.ModuleList(GeometryEmbedding(options.geometry_dim) for _ in range(embeddings))

    def forward(self, regions: Regions) -> list[Geometry]:
        """One Geometry for each layer; what no slot reads is left out."""
        options, boxes, mask = self.options, regions.boxes, regions.mask_or_ones
        if boxes is None or not options.needs_boxes:
            return [Geometry()] * self.num_layers
        embedded: list[Tensor] = [embed(boxes, mask) for embed in self.embeddings]
        if options.geometry == "relative":
            embedded = [relative_waves(relative_geometry(boxes, mask), options.geometry_dim)]
        places = cell_places(boxes, mask, options.cells)
        distance = pair_distances(places, options.distance)
        windows = local_windows(options.window, places, mask, size=options.window_size, halo=options.window_halo)
        return [
            Geometry(embedded[layer % len(embedded)] if embedded else None, distance, windows[layer % 2])
            for layer in range(self.num_layers)
        ]
