"""The base class of the configurations of captioners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from legenda.decoding.decoder import Decoder
from legenda.decoding.generation_config import GenerationConfig
from legenda.models.encoder import Encoder
from legenda.models.model import Config


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """Options of every captioner; a family's configuration adds others and builds encoder and decoder."""

    feature_dim: int = 2048
    """Channels of a region feature."""
    dim: int = 512
    """Channels inside the model."""
    decoder: str | Mapping[str, Any] | None = None
    """Another model whose decoder replaces this model's: its name, or {"name": ...} with options of that model."""

    def build_encoder(self) -> Encoder:
        """Return a new encoder with random weights."""
        raise NotImplementedError

    def build_decoder(self) -> Decoder:
        """Return a new decoder with random weights."""
        raise NotImplementedError

    @property
    def generation_config(self) -> GenerationConfig:
        """The defaults of generation in the release of the decoder."""
        return GenerationConfig()

    def require_positive(self, *names: str) -> None:
        """Raise ConfigError unless the common sizes and the named fields are at least 1."""
        super().require_positive("feature_dim", "dim", *names)
