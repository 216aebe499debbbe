"""SAN, N-SAN, G-SAN and NG-SAN: a Transformer from regions to captions (Guo et al., CVPR 2020)."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import model_validator

from legenda.attention.config import AttentionConfig
from legenda.attention.registries import BOX_EMBEDDINGS
from legenda.config import Count, PositiveInt, Probability
from legenda.errors import ConfigError
from legenda.models.config import CaptionerConfig


class TransformerConfig(AttentionConfig, CaptionerConfig):
    """Options of `transformer`, `nsan`, `gsan` and `ngsan`; the defaults are those of the paper (section 5.1).

    Where the paper is open: post-norm with a last normalization after each stack (as in PyTorch's Transformer), output
    layer not tied to the embedding, geometry embedded once for all layers.
    """

    encoder_class: ClassVar[str] = "legenda.models.transformer.encoder:TransformerEncoder"
    decoder_class: ClassVar[str] = "legenda.models.transformer.decoder:TransformerDecoder"

    num_heads: Count = 8
    num_layers: Count = 4
    """Layers of the encoder, and of the decoder."""
    ff_dim: PositiveInt = 2048
    """Inner channels of the feed-forward networks."""
    dropout: Probability = 0.1
    norm_first: bool = False
    """Layer normalization before each sublayer instead of after it."""
    tie_embeddings: bool = False
    """The output layer has the weights of the embedding, and no bias (Press and Wolf, 2017)."""
    ordered: bool = False
    """The regions are frames of a video in their order; the sinusoids of their positions are added to them."""

    @model_validator(mode="after")
    def _check_transformer(self) -> Self:
        if self.dim % self.num_heads or self.dim % 2:
            raise ConfigError(f"dim={self.dim} must be even and a multiple of num_heads={self.num_heads}")
        self.check(self.dim)
        return self

    def encoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the encoder."""
        from legenda.attention.builders import create_pair_geometry, create_self_attention

        return {
            **self.values_of("feature_dim", "dim", "num_layers", "ff_dim", "needs_boxes", "ordered"),
            **self.values_of("dropout", "norm_first"),
            "create_attention": lambda layer: create_self_attention(
                self, self.dim, self.num_heads, layer=layer, dropout=self.dropout
            ),
            "create_geometry": lambda: create_pair_geometry(self, self.num_layers),
            "box_embedding": self.geometry if self.geometry in BOX_EMBEDDINGS else None,
        }

    def decoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the decoder."""
        return self.values_of(
            "vocab_size", "dim", "num_heads", "num_layers", "ff_dim", "dropout", "norm_first", "tie_embeddings"
        )
