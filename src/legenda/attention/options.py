"""Which attention an encoder's regions use among themselves: its options, and the modules they name."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from legenda.attention.geometry import BIASES, Bias, Geometry, GeometryBias, GeometryEmbedding
from legenda.attention.multi_head import MultiHeadAttention
from legenda.attention.normalization import Norm, NormOn, create_norm
from legenda.errors import UserError
from legenda.regions import Regions


@dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """The self-attention among regions; every encoder that has one takes these options, in any combination."""

    norm: Norm = "none"
    """Normalisation inside the encoder's attention (NG-SAN, Table 2)."""
    norm_on: NormOn = "q"
    """What it normalises: queries, keys or both (NG-SAN, Table 3)."""
    geometry: str = "none"
    """Geometry of the encoder: none, absolute, or content, query, key and sums of them, as in "query+key" (NG-SAN,
    Table 4)."""
    geometry_dim: int = 64
    """Channels of the geometry embedding, and of Q' and K' in each head."""
    geometry_per_layer: bool = False
    """A geometry embedding for each layer instead of one for all."""
    geometry_scaled: bool = True
    """The geometric bias is divided by sqrt(d_k) like Q K^T; False leaves it outside."""

    def check(self, dim: int) -> None:
        """Raises UserError where the options contradict each other or an encoder `dim` channels wide."""
        if self.geometry not in ("none", "absolute") and not self.biases:
            known = ", ".join(("none", "absolute", *BIASES))
            raise UserError(f"geometry={self.geometry!r} is unknown; choose from {known}, or a sum such as query+key")
        if self.geometry == "absolute" and dim % 8:
            raise UserError(f"geometry='absolute' needs a dim that is a multiple of 8, not {dim}")

    @property
    def biases(self) -> tuple[Bias, ...]:
        """The geometric biases that `geometry` names; empty for none and absolute."""
        parts = self.geometry.split("+")
        return tuple(bias for bias in BIASES if bias in parts) if set(parts) <= set(BIASES) else ()

    @property
    def needs_boxes(self) -> bool:
        """Whether any of it reads where the regions lie."""
        return self.geometry != "none"


def create_self_attention(
    options: AttentionOptions,
    dim: int,
    num_heads: int,
    *,
    dropout: float,
    inner_dim: int | None = None,
    output: bool = True,
) -> MultiHeadAttention:
    """One layer's attention among regions as the options name it; see MultiHeadAttention for the rest."""
    width = dim if inner_dim is None else inner_dim
    return MultiHeadAttention(
        dim,
        num_heads,
        dropout=dropout,
        inner_dim=inner_dim,
        output=output,
        query_norm=create_norm(options.norm, width) if "q" in options.norm_on else None,
        key_norm=create_norm(options.norm, width) if "k" in options.norm_on else None,
        score_bias=GeometryBias(
            dim,
            num_heads,
            options.geometry_dim,
            options.biases,
            head_dim=width // num_heads,
            scaled=options.geometry_scaled,
        )
        if options.biases
        else None,
    )


class PairGeometry(nn.Module):
    """What each layer's attention reads about where regions lie, computed once per image."""

    def __init__(self, options: AttentionOptions, num_layers: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        embeddings = (num_layers if options.geometry_per_layer else 1) if options.biases else 0
        self.embeddings = nn.ModuleList(GeometryEmbedding(options.geometry_dim) for _ in range(embeddings))

    def forward(self, regions: Regions) -> list[Geometry]:
        """One Geometry for each layer; what no slot reads is left out."""
        embedded = [embed(regions.boxes, regions.valid) for embed in self.embeddings]
        return [
            Geometry(embedded=embedded[layer % len(embedded)] if embedded else None) for layer in range(self.num_layers)
        ]
