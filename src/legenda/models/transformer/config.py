"""SAN, N-SAN, G-SAN and NG-SAN: a Transformer from regions to captions (Guo et al., CVPR 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from legenda.attention.config import AttentionConfig
from legenda.errors import ConfigError
from legenda.models.config import ModelConfig

if TYPE_CHECKING:
    from legenda.models.transformer.decoder import TransformerDecoder
    from legenda.models.transformer.encoder import TransformerEncoder


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(AttentionConfig, ModelConfig):
    """Options of `transformer`, `nsan`, `gsan` and `ngsan`; the defaults are those of the paper (section 5.1).

    Where the paper is open: post-norm with a last normalization after each stack (as in PyTorch's Transformer), output
    layer not tied to the embedding, geometry embedded once for all layers.
    """

    num_heads: int = 8
    num_layers: int = 4
    """Layers of the encoder, and of the decoder."""
    ff_dim: int = 2048
    """Inner channels of the feed-forward networks."""
    dropout: float = 0.1
    norm_first: bool = False
    """Layer normalization before each sublayer instead of after it."""
    ordered: bool = False
    """The regions are frames of a video in their order; the sinusoids of their positions are added to them."""

    def __post_init__(self) -> None:
        self.require_positive("num_heads", "num_layers", "ff_dim", "geometry_dim")
        self.require_probabilities("dropout")
        if self.dim % self.num_heads or self.dim % 2:
            raise ConfigError(f"dim={self.dim} must be even and a multiple of num_heads={self.num_heads}")
        self.check(self.dim)

    def build_encoder(self) -> TransformerEncoder:
        """Return the encoder of section 3.2."""
        from legenda.models.transformer.encoder import TransformerEncoder

        return TransformerEncoder(**self.encoder_arguments())

    def build_decoder(self) -> TransformerDecoder:
        """Return the decoder of section 3.2."""
        from legenda.models.transformer.decoder import TransformerDecoder

        return TransformerDecoder(**self.decoder_arguments())

    def encoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the encoder."""
        from legenda.attention.builders import create_pair_geometry, create_self_attention

        return {
            "feature_dim": self.feature_dim,
            "dim": self.dim,
            "num_layers": self.num_layers,
            "ff_dim": self.ff_dim,
            "create_attention": lambda layer: create_self_attention(
                self, self.dim, self.num_heads, layer=layer, dropout=self.dropout
            ),
            "create_geometry": lambda: create_pair_geometry(self, self.num_layers),
            "needs_boxes": self.needs_boxes,
            "absolute_geometry": self.geometry == "absolute",
            "ordered": self.ordered,
            "dropout": self.dropout,
            "norm_first": self.norm_first,
        }

    def decoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the decoder."""
        names = ("vocab_size", "dim", "num_heads", "num_layers", "ff_dim", "dropout", "norm_first")
        return {name: getattr(self, name) for name in names}
