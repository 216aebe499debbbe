"""Beam search over all images and beams at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from legenda.decoding.common import Decodable, Decoded, memory_of, next_log_probs, rule_of, stack_attention
from legenda.errors import UserError
from legenda.models.decoder import DecodingRule
from legenda.regions import Memory, Regions


@torch.no_grad()
def beam_search(
    model: Decodable,
    images: Regions | Memory,
    *,
    beam_size: int = 3,
    max_length: int | None = None,
    length_penalty: float | None = None,
    results: int | None = None,
    need_attention: bool = False,
) -> Decoded:
    """The best captions found by keeping `beam_size` hypotheses per image, best first.

    A hypothesis is ranked by the sum of its log-probabilities, divided by length**length_penalty. Finished
    hypotheses keep their place and their score and compete with the open ones. An image is done when none of its
    open hypotheses can enter the first `results` (all by default); the search stops when all images are done, or
    after `max_length` words. What is not given follows `model.decoding`.
    """
    if beam_size < 1:
        raise UserError(f"beam_size must be at least 1, not {beam_size}")
    results = beam_size if results is None else results
    if not 1 <= results <= beam_size:
        raise UserError(f"results must lie between 1 and beam_size={beam_size}, not {results}")
    rule = rule_of(model, max_length=max_length, length_penalty=length_penalty)
    memory = memory_of(model, images)

    # All beams are equal before the first word, so the search starts with one and widens.
    beams = _Beams.begin(len(memory), memory.mask.device)
    state = model.decoder.start(memory, 1)
    token = torch.full((len(memory), 1), rule.begin_id, device=memory.mask.device)
    trace: list[_Choice] = []
    looked: list[Tensor] = []
    for _ in range(rule.max_length):
        logits, state = model.decoder.step(token, state, memory)
        if need_attention and state.attention is not None:
            looked.append(state.attention)
        beams, choice = beams.advance(next_log_probs(logits, rule), beam_size, rule)
        trace.append(choice)
        if beams.decided(results, rule):
            break
        state = state.reorder(choice.parents)
        token = choice.tokens
    return _read_back(trace, looked, beams, results, rule)


@dataclass(frozen=True)
class _Choice:
    """What one step chose: from which beam each new one comes, by which word, and that word's log-probability."""

    parents: Int[Tensor, "B K"]
    tokens: Int[Tensor, "B K"]
    log_probs: Float[Tensor, "B K"]
    alive: Bool[Tensor, "B K"]


@dataclass(frozen=True)
class _Beams:
    """The hypotheses of one moment, best first: sums of log-probabilities, lengths, and which have ended."""

    totals: Float[Tensor, "B K"]
    lengths: Int[Tensor, "B K"]
    ended: Bool[Tensor, "B K"]

    @staticmethod
    def begin(images: int, device: torch.device) -> _Beams:
        zeros = torch.zeros(images, 1, device=device)
        return _Beams(zeros, zeros.long(), zeros.bool())

    def advance(self, log_probs: Float[Tensor, "B K V"], beam_size: int, rule: DecodingRule) -> tuple[_Beams, _Choice]:
        """The best `beam_size` of all continuations; an ended hypothesis has one, which changes nothing."""
        V = log_probs.shape[-1]
        unchanged = torch.full((V,), float("-inf"), dtype=log_probs.dtype, device=log_probs.device)
        unchanged[rule.end_id] = 0.0
        log_probs = torch.where(self.ended.unsqueeze(-1), unchanged, log_probs)
        totals = self.totals.unsqueeze(-1) + log_probs
        lengths = self.lengths + ~self.ended
        ranks = _rank(totals, lengths.unsqueeze(-1), rule).flatten(1)
        best = ranks.topk(min(beam_size, ranks.shape[1]), dim=1).indices
        parents, tokens = best // V, best % V
        was_ended = self.ended.gather(1, parents)
        choice = _Choice(parents, tokens, log_probs.flatten(1).gather(1, best), ~was_ended)
        beams = _Beams(
            totals.flatten(1).gather(1, best), lengths.gather(1, parents), was_ended | (tokens == rule.end_id)
        )
        return beams, choice

    def ranks(self, rule: DecodingRule) -> Float[Tensor, "B K"]:
        """What the hypotheses compete by."""
        return _rank(self.totals, self.lengths, rule)

    def decided(self, results: int, rule: DecodingRule) -> bool:
        """Whether no open hypothesis of any image can still enter, or change, the first `results`.

        A sum of log-probabilities only falls, and the longest caption is divided by most: that bounds each of them.
        """
        if self.totals.shape[1] < results:
            return False
        longest = torch.full_like(self.lengths, rule.max_length)
        bound = _rank(self.totals, longest, rule).masked_fill(self.ended, float("-inf")).amax(dim=1)
        certain = self.ended[:, :results].all(dim=1) & (self.ranks(rule)[:, results - 1] >= bound)
        return bool(certain.all())


def _rank(totals: Tensor, lengths: Tensor, rule: DecodingRule) -> Tensor:
    return totals if rule.length_penalty == 0 else totals / lengths.to(totals.dtype) ** rule.length_penalty


def _read_back(trace: list[_Choice], looked: list[Tensor], beams: _Beams, results: int, rule: DecodingRule) -> Decoded:
    """Follows the first `results` hypotheses from their last word to their first."""
    row = torch.arange(beams.totals.shape[1], device=beams.totals.device)[:results].expand(len(beams.totals), -1)
    tokens, log_probs, alive, seen = [], [], [], []
    for step in range(len(trace) - 1, -1, -1):
        choice = trace[step]
        tokens.append(choice.tokens.gather(1, row))
        log_probs.append(choice.log_probs.gather(1, row))
        alive.append(choice.alive.gather(1, row))
        row = choice.parents.gather(1, row)
        if looked:
            image = torch.arange(len(row), device=row.device).unsqueeze(1)
            seen.append(looked[step][image, row])
    backwards = slice(None, None, -1)
    scores = beams.ranks(rule)[:, :results]
    filler = scores.isneginf().unsqueeze(-1)
    return Decoded(
        torch.stack(tokens[backwards], dim=-1).masked_fill(filler, rule.end_id),
        torch.stack(log_probs[backwards], dim=-1).masked_fill(filler, 0.0),
        scores,
        stack_attention(seen[backwards], torch.stack(alive[backwards], dim=-1)),
    )
