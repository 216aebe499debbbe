"""What every decoder offers: rows of tokens that look at one image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, get_type_hints, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.errors import UserError
from legenda.regions import Memory


@dataclass(frozen=True, kw_only=True)
class DecodingRule:
    """How a model's captions begin, end and compete; every search reads it and every call may override it.

    banned_ids: words that no search ever says; beam_banned_ids: words that beam search does not say.
    finished: what becomes of a caption that has ended during beam search. "compete": it stays in the beam and holds its
    place against the open ones (Meshed-Memory Transformer, X-LAN, MD-SAN). "aside": it is put aside and its place goes
    to the best open one (AoANet, and the search behind X-LAN's paper).
    length_penalty, length_rule: a caption of n words, its end counted, is ranked by the sum of its log-probabilities
    divided by n**length_penalty ("power"), or by ((5 + n) / 6)**length_penalty ("wu"; Wu et al., 2016, Eq. 14).
    no_repeat: no word follows itself. bad_endings: words after which no caption ends.
    trigram_penalty: greedy decoding and sampling take this from a word's log-probability for every time that the
    three words it would complete have been said before; beam search does not, as in AoANet's release.
    """

    begin_id: int = 0
    end_id: int = 0
    banned_ids: tuple[int, ...] = ()
    beam_banned_ids: tuple[int, ...] = ()
    max_length: int = 20
    finished: Literal["compete", "aside"] = "compete"
    length_penalty: float = 0.0
    length_rule: Literal["power", "wu"] = "power"
    no_repeat: bool = False
    bad_endings: tuple[int, ...] = ()
    trigram_penalty: float = 0.0

    def __post_init__(self) -> None:
        from legenda.models.fields import fits

        for name, hint in get_type_hints(type(self)).items():
            if not fits(getattr(self, name), hint):
                raise UserError(f"decoding.{name} cannot be {getattr(self, name)!r}")
        if min(self.ids) < 0:
            raise UserError("decoding needs ids of 0 or more")
        if self.max_length < 1:
            raise UserError(f"max_length must be at least 1, not {self.max_length}")
        for name in ("length_penalty", "trigram_penalty"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name} must be 0 or more, not {getattr(self, name)}")

    @property
    def ids(self) -> tuple[int, ...]:
        """Every id that the rule names."""
        return (self.begin_id, self.end_id, *self.banned_ids, *self.beam_banned_ids, *self.bad_endings)


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


def pick_rows(x: Tensor, beams: Tensor) -> Tensor:
    """Of `(B, K, ...)`, the rows that `beams` `(B, K')` names for each image."""
    image = torch.arange(len(beams), device=beams.device).unsqueeze(1)
    return x[image, beams]


Length = int | Tensor
"""Words so far: a number where what is kept of them grows, a tensor `()` where there is room for all from the start."""


def with_word(said: Tensor, word: Tensor, dim: int, length: Length) -> Tensor:
    """What is kept of the words so far and of one more, which `dim` counts: appended, or put in its place."""
    if isinstance(length, int):
        return torch.cat([said, word], dim=dim)
    return said.index_copy(dim, length.view(1), word.to(said.dtype))


def no_words(
    memory: Memory, num_heads: int, rows: int, room: int, dtype: torch.dtype
) -> tuple[tuple[Tensor, Tensor], ...]:
    """Zeros for the keys and values of `room` words `(B, K, H, room, d)`, for each layer that looks at the memory."""
    B, _, D = memory.states.shape
    nothing = memory.states.new_zeros(B, rows, num_heads, room, D // num_heads, dtype=dtype)
    return tuple((nothing, nothing) for _ in memory.keys_values)


class Decoder(nn.Module):
    """Turns rows of tokens and the memory of their images into logits of the next word.

    A module holds no state, so two decodings of one model can run at once.
    """

    reads_summary: bool = True
    """Whether it reads the memory's global vector."""

    steady: bool = False
    """Whether no step changes the shapes of a state of `start`; see `start_with_room`."""

    normalised: bool = False
    """Whether `step` gives log-probabilities that are to be taken as they are, as ensembles do, instead of logits."""

    def initialise(self) -> None:
        """Fills the weights anew where torch's own numbers are not the model's; called once both halves stand."""

    def project(self, memory: Memory) -> Memory:
        """The memory with everything that does not depend on the tokens computed once."""
        raise NotImplementedError

    def start(self, memory: Memory, rows: int) -> State:
        """The state of `rows` empty rows per image."""
        raise NotImplementedError

    def start_with_room(self, memory: Memory, rows: int, words: int) -> State | None:  # noqa: ARG002
        """Return the same state with capacity for `words` tokens (a static cache); None where the decoder has none.

        It is a dataclass of tensors, and of tuples and dataclasses of these. No step changes a shape or a dtype, except
        that the first one adds `attention`. So one compiled step serves all positions.
        """
        return self.start(memory, rows) if self.steady else None

    def step(self, tokens: Int[Tensor, "B K"], state: Any, memory: Memory) -> tuple[Float[Tensor, "B K V"], State]:
        """Logits of the word after `tokens`, and the state that follows; `state` is one of this decoder's own."""
        raise NotImplementedError

    def forward(self, tokens: Int[Tensor, "B K T"], memory: Memory) -> Float[Tensor, "B K T V"]:
        """Logits after every prefix of `tokens`, all positions at once; equal to T steps."""
        raise NotImplementedError
