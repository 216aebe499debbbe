"""What the configuration of every captioner says, and how the decoder of another model is named in it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from legenda.decoding.decoder import Decoder, DecodingRule
from legenda.errors import UserError
from legenda.models.encoder import Encoder
from legenda.models.model import Config


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """The fields that all captioners have. A family's configuration adds its own, and builds its two halves."""

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
        """Raises UserError unless the common fields and the named ones are at least 1."""
        super().positive("feature_dim", "dim", *names)


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
