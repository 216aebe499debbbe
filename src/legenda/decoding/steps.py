"""The words of one search, step by step: what a decoder and a rule say may follow."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor

from legenda.decoding.common import Decodable
from legenda.decoding.recording import Recording, key_of, put_back, taken
from legenda.models.decoder import Decoder, DecodingRule, State
from legenda.regions import Memory


@contextmanager
def open_steps(
    model: Decodable,
    memory: Memory,
    rows: int,
    rule: DecodingRule,
    *,
    beam: bool,
    widest: int | None = None,
    temperature: float = 1.0,
) -> Iterator[Steps]:
    """The steps of a search that begins with `rows` rows of each image and goes on with `widest`, as many unless told.

    beam: whether this is beam search, which bans words of its own and whose rows change places. temperature: divides
    the log-probabilities of all words but the first, which are normalised again.
    """
    kind = RecordedSteps if memory.mask.device.type == "cuda" else Steps
    steps = kind(model.decoder, memory, rows, rule, beam=beam, temperature=temperature)
    with model.decoder.looping(len(memory) * (widest or rows)):
        yield steps
    steps.close()


class Steps:
    """Called with the words just chosen, it says what may follow them; the state of the rows is kept in between."""

    def __init__(
        self, decoder: Decoder, memory: Memory, rows: int, rule: DecodingRule, *, beam: bool, temperature: float
    ) -> None:
        device = memory.mask.device
        banned = rule.banned_ids + rule.beam_banned_ids if beam else rule.banned_ids
        self.decoder, self.memory, self.rule = decoder, memory, rule
        self.beam, self.temperature = beam, temperature
        self.banned = torch.tensor(banned, device=device) if banned else None
        self.bad_endings = torch.tensor(rule.bad_endings, device=device) if rule.bad_endings else None
        self.begun = False
        self.state = self._start(rows)

    def __call__(
        self, tokens: Int[Tensor, "B K"], parents: Int[Tensor, "B K"] | None = None
    ) -> tuple[Float[Tensor, "B K V"], Float[Tensor, "B K H N"] | None]:
        """Log-probabilities of the words after `tokens`, in at least float32, and where the rows looked.

        What the rule forbids is impossible, the rest unchanged. parents: the rows so far that those of `tokens` go on,
        the same ones unless told. The log-probabilities may be written over by the next call.
        """
        state = self.state if parents is None else self.state.reorder(parents)
        log_probs, self.state = self._follow(tokens, state, self.memory)
        self.begun = True
        return log_probs, self.state.attention

    def close(self) -> None:
        """The search is done."""

    def _start(self, rows: int) -> State:
        return self.decoder.start(self.memory, rows)

    def _follow(self, tokens: Int[Tensor, "B K"], state: State, memory: Memory) -> tuple[Tensor, State]:
        logits, state = self.decoder.step(tokens, state, memory)
        precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
        log_probs = precise.clone() if self.decoder.normalised else precise.log_softmax(dim=-1)
        if self.begun and self.temperature != 1:
            log_probs = (log_probs / self.temperature).log_softmax(dim=-1)
        if self.banned is not None:
            log_probs.index_fill_(-1, self.banned, float("-inf"))
        if self.begun and self.rule.no_repeat:
            log_probs.scatter_(-1, tokens.unsqueeze(-1), float("-inf"))
        if self.begun and self.bad_endings is not None:
            bad = tokens.unsqueeze(-1).eq(self.bad_endings).any(dim=-1)
            log_probs[..., self.rule.end_id].masked_fill_(bad, float("-inf"))
        return log_probs, state


class RecordedSteps(Steps):
    """The same, recorded at the second word, from where on the rows are as many as they will be."""

    recording: Recording | None = None
    key: Hashable = None

    def _start(self, rows: int) -> State:
        return self.decoder.start_with_room(self.memory, rows, self.rule.max_length)

    def __call__(
        self, tokens: Int[Tensor, "B K"], parents: Int[Tensor, "B K"] | None = None
    ) -> tuple[Float[Tensor, "B K V"], Float[Tensor, "B K H N"] | None]:
        """As in Steps."""
        if not self.begun:
            return super().__call__(tokens, parents)
        if self.recording is None:
            state = self.state if parents is None else self.state.reorder(parents)
            self.recording, parents = self._recording(tokens, state), None
            self.recording.load(state, self.memory)
        log_probs = self.recording.replay(self._follow, tokens, parents)
        attention = self.recording.state.attention
        return log_probs, None if attention is None else attention.clone()

    def close(self) -> None:
        """Keeps the recording for the next search of its kind."""
        if self.recording is not None:
            put_back(self.decoder, self.key, self.recording)

    def _recording(self, tokens: Tensor, state: State) -> Recording:
        shapes = key_of(self.decoder, tokens, state, self.memory)
        self.key = self.rule, self.beam, self.temperature, shapes
        found = taken(self.decoder, self.key)
        if found is not None:
            return found
        kept = self.banned, self.bad_endings
        return Recording(self._follow, tokens, state, self.memory, reorders=self.beam, kept=kept)
