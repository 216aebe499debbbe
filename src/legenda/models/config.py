"""What the configuration of every captioner says, and how the decoder of another model is named in it."""

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
    """The fields that all captioners have. A family's configuration adds its own, and builds its two halves."""

    feature_dim: int = 2048
    """Channels of a region feature."""
    dim: int = 512
    """Channels inside the model."""
    decoder: str | Mapping[str, Any] | None = None
    """Another model whose decoder attends to this encoder: its name, or {"name": ...} with options of that model; None
    for the model's own."""

    def build_encoder(self) -> Encoder:
        """A new encoder with random weights."""
        raise NotImplementedError

    def build_decoder(self) -> Decoder:
        """A new decoder with random weights."""
        raise NotImplementedError

    @property
    def generation_config(self) -> GenerationConfig:
        """How captions are searched for by the release whose decoder this is."""
        return GenerationConfig()

    def positive(self, *names: str) -> None:
        """Raises UserError unless the common fields and the named ones are at least 1."""
        super().positive("feature_dim", "dim", *names)
