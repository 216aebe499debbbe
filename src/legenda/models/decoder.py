"""What every decoder offers: rows of tokens that look at one image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self, get_type_hints, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.errors import UserError
from legenda.models.fields import fits
from legenda.regions import Memory


@dataclass(frozen=True, kw_only=True)
class DecodingRule:
    """How a model's captions begin, end and compete; every search reads it and every call may override it.

    length_penalty: a hypothesis of n words (its end counted) is ranked by sum of log-probabilities / n**length_penalty.
    """

    begin_id: int = 0
    end_id: int = 0
    banned_ids: tuple[int, ...] = ()
    max_length: int = 20
    length_penalty: float = 0.0

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            if not fits(getattr(self, name), hint):
                raise UserError(f"decoding.{name} cannot be {getattr(self, name)!r}")
        if min(self.begin_id, self.end_id, *self.banned_ids) < 0:
            raise UserError("decoding needs ids of 0 or more")
        if self.max_length < 1:
            raise UserError(f"max_length must be at least 1, not {self.max_length}")
        if not self.length_penalty >= 0:
            raise UserError(f"length_penalty must be 0 or more, not {self.length_penalty}")


@runtime_checkable
class State(Protocol):
    """All that a decoder remembers of its rows between two steps; it lives outside every module.

    attention: where the rows looked in the last step, by the last layer's weights `(B, K, H, N)`, or None when nothing
    was decoded yet.
    """

    @property
    def attention(self) -> Float[Tensor, "B K H N"] | None: ...

    def reorder(self, beams: Int[Tensor, "B K"]) -> Self:
        """The state of rows `beams`; K may differ from the number of rows so far."""
        ...


class Decoder(nn.Module):
    """Turns rows of tokens and the memory of their images into logits of the next word.

    A module holds no state, so two decodings of one model can run at once.
    """

    def project(self, memory: Memory) -> Memory:
        """The memory with everything that does not depend on the tokens computed once."""
        raise NotImplementedError

    def start(self, memory: Memory, rows: int) -> State:
        """The state of `rows` empty rows per image."""
        raise NotImplementedError

    def step(self, tokens: Int[Tensor, "B K"], state: Any, memory: Memory) -> tuple[Float[Tensor, "B K V"], State]:
        """Logits of the word after `tokens`, and the state that follows; `state` is one of this decoder's own."""
        raise NotImplementedError

    def forward(self, tokens: Int[Tensor, "B K T"], memory: Memory) -> Float[Tensor, "B K T V"]:
        """Logits after every prefix of `tokens`, all positions at once; equal to T steps."""
        raise NotImplementedError
