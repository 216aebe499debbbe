"""Options of generation."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from legenda.config import Config, Count, NonNegativeFloat, NonNegativeInt
from legenda.errors import ConfigError


class GenerationConfig(Config):
    """Options of generation: each model has its own as `model.generation_config`, and every call may override them.

    Raises ConfigError for a value of the wrong type or out of range.
    """

    bos_token_id: int = 0
    """The token before the first one."""
    eos_token_id: int = 0
    """The token that ends a sequence."""
    pad_token_id: int | None = None
    """The token that follows eos in outputs; eos itself by default."""
    suppress_tokens: tuple[int, ...] = ()
    """Tokens that are never generated."""
    beam_suppress_tokens: tuple[int, ...] = ()
    """Tokens that beam search does not generate."""
    max_length: Count = 20
    """Greatest number of tokens, eos included."""
    finished_beams: Literal["keep", "release"] = "keep"
    """What happens to a hypothesis of beam search that has ended. "keep": it stays in the beam and competes with the
    unfinished ones (Meshed-Memory Transformer, X-LAN, MD-SAN). "release": it is stored, and its slot is released to the
    best unfinished one (AoANet, and the search behind X-LAN's paper)."""
    length_penalty: NonNegativeFloat = 0.0
    """Exponent p of the length normalization of scores."""
    length_normalization: Literal["power", "gnmt"] = "power"
    """What the sum of the log-probabilities of n tokens, eos included, is divided by. "power": n**p; "gnmt":
    ((5 + n) / 6)**p (Wu et al., 2016, Eq. 14)."""
    no_immediate_repeat: bool = False
    """Never generate the same token twice in a row."""
    forbidden_last_tokens: tuple[int, ...] = ()
    """Tokens that eos may not follow."""
    no_repeat_ngram_size: NonNegativeInt = 0
    """Never generate an n-gram of this size twice in a sequence; 0 allows all."""
    trigram_penalty: NonNegativeFloat = 0.0
    """Subtracted from a token's log-probability for each time that the trigram it would complete has occurred before in
    its row; greedy decoding and sampling apply it, beam search does not, as in AoANet's release."""

    @model_validator(mode="after")
    def _check_generation(self) -> Self:
        if min(self.token_ids) < 0:
            raise ConfigError(f"generation_config takes token ids of at least 0, not {min(self.token_ids)}")
        return self

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All token ids of the configuration."""
        return (
            self.bos_token_id,
            self.eos_token_id,
            *(() if self.pad_token_id is None else (self.pad_token_id,)),
            *self.suppress_tokens,
            *self.beam_suppress_tokens,
            *self.forbidden_last_tokens,
        )

    @property
    def padding_id(self) -> int:
        """The token that follows eos in outputs."""
        return self.eos_token_id if self.pad_token_id is None else self.pad_token_id
