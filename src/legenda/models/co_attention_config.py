"""Options of MCAN's models for question answering and grounding."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import model_validator

from legenda.attention.config import AttentionConfig
from legenda.attention.registries import BOX_EMBEDDINGS
from legenda.config import Count, PositiveInt, Probability
from legenda.errors import ConfigError
from legenda.models.config import ModelConfig


class CoAttentionConfig(AttentionConfig, ModelConfig):
    """Sizes of the backbone; the attention options are those of the self-attention among regions."""

    feature_dim: PositiveInt = 2048
    """Channels of a region feature."""
    word_dim: PositiveInt = 300
    """Channels of a word embedding."""
    dim: PositiveInt = 512
    """Channels inside the model."""
    num_heads: Count = 8
    num_layers: Count = 6
    """Layers of the text encoder, and of the region encoder."""
    ff_dim: PositiveInt = 2048
    """Inner channels of the feed-forward networks."""
    pool_dim: PositiveInt = 512
    """Inner channels of the networks that score tokens and regions for pooling."""
    pooled_dim: PositiveInt = 1024
    """Channels of the pooled question and of the pooled image."""
    max_text_length: Count = 14
    """Texts are truncated to this many tokens."""
    dropout: Probability = 0.1
    """Of attention weights, of the output of each sublayer, and inside feed-forward networks and pooling."""

    derived: ClassVar[tuple[str, ...]] = ("vocab_size", "feature_dim", "max_text_length")

    @model_validator(mode="after")
    def _check_co_attention(self) -> Self:
        if self.dim % self.num_heads:
            raise ConfigError(f"dim={self.dim} must be a multiple of num_heads={self.num_heads}")
        if self.geometry in BOX_EMBEDDINGS:
            raise ConfigError(f"geometry={self.geometry!r} is for the Transformer; choose query, key or content")
        self.check(self.dim)
        return self


class McanConfig(CoAttentionConfig):
    """MCAN as released (MILVLG/mcan-vqa); the defaults are its small model.

    The large one has dim=1024, num_heads=16, ff_dim=4096 and pooled_dim=2048.
    """

    model_class: ClassVar[str] = "legenda.models.mcan:Mcan"

    answers: PositiveInt = 3129
    """Number of answers; VQA-v2 has this many that annotators gave more than eight times."""
    glimpses: Count = 1
    """Weighted sums of the tokens, and of the regions, that are concatenated."""

    derived: ClassVar[tuple[str, ...]] = (*CoAttentionConfig.derived, "answers")


class GroundingConfig(CoAttentionConfig):
    """MCAN for grounding as released, without biases in the projections of attention."""

    model_class: ClassVar[str] = "legenda.models.grounding:Grounder"
