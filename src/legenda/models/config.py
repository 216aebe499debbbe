"""What the configuration of every model says, and how the decoder of another model is named in it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from legenda.errors import UserError
from legenda.models.decoder import Decoder, DecodingRule
from legenda.models.encoder import Encoder


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The fields that all models have. A family's configuration adds its own, and builds its two halves."""

    vocab_size: int
    """Words of the vocabulary, special ids included."""
    feature_dim: int = 2048
    """Channels of a region feature."""
    dim: int = 512
    """Channels inside the model."""
    decoder: str = ""
    """Another model whose decoder reads this encoder, as in "transformer" or "transformer(num_layers=2)"; empty for the
    model's own."""

    def build_encoder(self) -> Encoder:
        """A new encoder with random weights."""
        raise NotImplementedError

    def build_decoder(self) -> Decoder:
        """A new decoder with random weights."""
        raise NotImplementedError

    @property
    def decoding(self) -> DecodingRule:
        """How captions are searched for by the release whose decoder this is."""
        return DecodingRule()

    def positive(self, *names: str) -> None:
        """Raises UserError unless the named fields are at least 1."""
        for name in ("vocab_size", "feature_dim", "dim", *names):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}")

    def shares(self, *names: str) -> None:
        """Raises UserError unless each named field is a probability below 1."""
        for name in names:
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)} must lie in 0..1, below 1")


def read_decoder(text: str) -> tuple[str, dict[str, Any]]:
    """The model and the options that a `decoder` field names: "transformer(num_layers=2)" gives both."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if isinstance(call, ast.Name):
            return call.id, {}
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args:
            return call.func.id, {str(word.arg): ast.literal_eval(word.value) for word in call.keywords if word.arg}
    except (SyntaxError, ValueError):
        pass
    raise UserError(f'decoder={text!r} cannot be read; write a model\'s name, or "transformer(num_layers=2)"')
