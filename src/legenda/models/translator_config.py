"""Options of translators."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import model_validator

from legenda.attention.config import AttentionConfig
from legenda.config import Count, PositiveInt, Probability
from legenda.errors import ConfigError
from legenda.models.config import ModelConfig


class TranslatorConfig(AttentionConfig, ModelConfig):
    """Options of a translator; the defaults are Transformer-Base (fairseq's transformer_wmt_en_de).

    The options of attention are those of the encoder, as in NG-SAN's Table 8. Tokens have no boxes, so options that
    need boxes raise ConfigError.
    """

    model_class: ClassVar[str] = "legenda.models.translator:Translator"
    derived: ClassVar[tuple[str, ...]] = ("vocab_size",)

    dim: PositiveInt = 512
    """Channels inside the model."""
    num_heads: Count = 8
    num_layers: Count = 6
    """Layers of the encoder, and of the decoder."""
    ff_dim: PositiveInt = 2048
    """Inner channels of the feed-forward networks."""
    dropout: Probability = 0.1
    """Of embeddings and of the output of each sublayer."""
    inner_dropout: Probability = 0.0
    """Of attention weights and inside the feed-forward networks."""
    norm_first: bool = False
    """Layer normalization before each sublayer, and after each stack, instead of after each sublayer."""

    @model_validator(mode="after")
    def _check_translator(self) -> Self:
        if self.dim % self.num_heads or self.dim % 2:
            raise ConfigError(f"dim={self.dim} must be even and a multiple of num_heads={self.num_heads}")
        self.check(self.dim)
        if self.needs_boxes:
            raise ConfigError(
                "the tokens of a sentence have no boxes: leave geometry, distance and window of a translator at none"
            )
        return self
