"""Options of the self-attention among regions; importing them needs no torch."""

from __future__ import annotations

from typing import Annotated

from legenda.attention.registries import (
    ATTENTIONS,
    BOX_EMBEDDINGS,
    DISTANCES,
    GEOMETRIES,
    NORMS,
    WINDOWS,
    Bias,
    DistanceInit,
    NormOn,
    Scaling,
    geometric_biases,
)
from legenda.config import Config, Count, NonNegativeCount, PositiveInt, Probability
from legenda.errors import ConfigError


class AttentionConfig(Config):
    """Options of the self-attention among regions; every encoder with one takes them, in any combination."""

    attention: Annotated[str, ATTENTIONS] = "multi_head"
    """multi_head (dot products), x_linear (no norm, no head options and no other width), memory (the same without
    relative geometry, distances and windows), or one that is registered."""
    memory_slots: PositiveInt = 40
    """Learned keys and values besides the regions', with attention="memory" (Cornia et al., CVPR 2020)."""
    norm: Annotated[str, NORMS] = "none"
    """Normalization inside the encoder's attention (NG-SAN, Table 2)."""
    norm_on: NormOn = "q"
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
    """A residual connection and layer normalization inside each branch; None for the default of `reading`."""
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
