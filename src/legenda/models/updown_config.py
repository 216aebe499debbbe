"""Options of Up-Down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from legenda.config import PositiveInt, Probability
from legenda.models.config import CaptionerConfig


class UpDownConfig(CaptionerConfig):
    """Options of `updown`; the defaults are the paper's sizes (section 4.1)."""

    encoder_class: ClassVar[str] = "legenda.models.updown:UpDownEncoder"
    decoder_class: ClassVar[str] = "legenda.models.updown:UpDownDecoder"

    generation: ClassVar[Mapping[str, Any]] = {"no_immediate_repeat": True, "max_length": 20}
    """No word twice in a row, as in the paper."""

    dim: int = 1000
    """Channels of both LSTMs."""
    word_dim: PositiveInt | None = None
    """Channels of a word embedding; `dim` by default."""
    additive_dim: PositiveInt = 512
    """Inner channels of the attention."""
    dropout: Probability = 0.0
    """Of embeddings and of the output layer's input. The paper and its release have none, with SGD and weight decay;
    trained by Adam, 0.5 is usual."""

    @property
    def memory_dim(self) -> int:
        """Channels of a region, which the encoder leaves as they are."""
        return self.feature_dim

    def decoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the decoder."""
        return {
            **self.values_of("vocab_size", "feature_dim", "dim", "additive_dim", "dropout"),
            "word_dim": self.word_dim or self.dim,
        }
