"""The words of one search, step by step: what a decoder and a rule say may follow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor

from legenda.decoding.common import Decodable
from legenda.decoding.decoder import Decoder, DecodingRule, State
from legenda.decoding.recording import Key, Recording, key_of, put_back, replays, take
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
    decoder = model.decoder
    state = decoder.start_with_room(memory, rows, rule.max_length) if replays(memory.mask.device) else None
    if state is None:
        steps = Steps(decoder, memory, decoder.start(memory, rows), rule, beam=beam, temperature=temperature)
    else:
        steps = RecordedSteps(decoder, memory, state, rule, beam=beam, temperature=temperature, widest=widest or rows)
    yield steps
    steps.close()


class Steps:
    """Called with the words just chosen, it says what may follow them; the state of the rows is kept in between."""

    def __init__(
        self, decoder: Decoder, memory: Memory, state: State, rule: DecodingRule, *, beam: bool, temperature: float
    ) -> None:
        """state: of rows without words."""
        device = memory.mask.device
        banned = rule.banned_ids + rule.beam_banned_ids if beam else rule.banned_ids
        self.decoder, self.memory, self.state = decoder, memory, state
        self.beam, self.temperature, self.begun = beam, temperature, False
        self.forbidden = banned, rule.bad_endings, rule.no_repeat, rule.end_id
        self.banned = torch.tensor(banned, device=device) if banned else None
        self.bad_endings = torch.tensor(rule.bad_endings, device=device) if rule.bad_endings else None

    def __call__(
        self, tokens: Int[Tensor, "B K"], parents: Int[Tensor, "B K"] | None = None
    ) -> tuple[Float[Tensor, "B K V"], Float[Tensor, "B K H N"] | None]:
        """Log-probabilities of the words after `tokens`, in at least float32, and where the rows looked.

        What the rule forbids is impossible, the rest unchanged. parents: the rows so far that those of `tokens` go on,
        the same ones unless told. The log-probabilities may be written over by the next call.
        """
        state = self.state if parents is None else self.state.reorder(parents)
        log_probs, self.state = self.follow(tokens, state, self.memory)
        self.begun = True
        return log_probs, self.state.attention

    def close(self) -> None:
        """The search is done."""

    def follow(self, tokens: Int[Tensor, "B K"], state: State, memory: Memory) -> tuple[Float[Tensor, "B K V"], State]:
        """The step itself: log-probabilities as above, and the state that follows."""
        _, _, no_repeat, end_id = self.forbidden
        logits, state = self.decoder.step(tokens, state, memory)
        precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
        log_probs = precise.clone() if self.decoder.normalised else precise.log_softmax(dim=-1)
        if self.begun and self.temperature != 1:
            log_probs = (log_probs / self.temperature).log_softmax(dim=-1)
        if self.banned is not None:
            log_probs.index_fill_(-1, self.banned, float("-inf"))
        if self.begun and no_repeat:
            log_probs.scatter_(-1, tokens.unsqueeze(-1), float("-inf"))
        if self.begun and self.bad_endings is not None:
            bad = tokens.unsqueeze(-1).eq(self.bad_endings).any(dim=-1)
            log_probs[..., end_id].masked_fill_(bad, float("-inf"))
        return log_probs, state


class RecordedSteps(Steps):
    """The same, recorded once the rows are as many as they will be, if a search of this kind has come before.

    A recording takes as long as several steps, so that it does not pay for shapes that come but once.
    """

    def __init__(
        self,
        decoder: Decoder,
        memory: Memory,
        state: State,
        rule: DecodingRule,
        *,
        beam: bool,
        temperature: float,
        widest: int,
    ) -> None:
        """state: with room for all words; widest: the most rows of an image that there will be."""
        super().__init__(decoder, memory, state, rule, beam=beam, temperature=temperature)
        self.widest = widest
        self.key: Key | None = None
        self.recording: Recording | None = None

    def __call__(
        self, tokens: Int[Tensor, "B K"], parents: Int[Tensor, "B K"] | None = None
    ) -> tuple[Float[Tensor, "B K V"], Float[Tensor, "B K H N"] | None]:
        """As in Steps."""
        if self.begun and self.key is None and tokens.shape[1] == self.widest:
            if parents is not None:
                self.state, parents = self.state.reorder(parents), None
            self.recording = self._recording(tokens)
        if self.recording is None:
            return super().__call__(tokens, parents)
        log_probs = self.recording.replay(self.follow, tokens, parents)
        attention = self.recording.state.attention
        return log_probs, None if attention is None else attention.clone()

    def close(self) -> None:
        """Keeps the recording for the next search of its kind."""
        if self.key is not None and self.recording is not None:
            put_back(self.decoder, self.key, self.recording)

    def _recording(self, tokens: Tensor) -> Recording | None:
        """One that begins with the state there is; None for the first search of its kind."""
        said = self.beam, self.temperature, self.forbidden
        self.key = key_of(self.decoder, said, tokens, self.state, self.memory)
        found, known = take(self.decoder, self.key)
        if found is None and not known:
            return None
        if found is None:
            kept = self.banned, self.bad_endings
            found = Recording(self.follow, tokens, self.state, self.memory, reorders=self.beam, kept=kept)
        found.load(self.state, self.memory)
        return found
