"""Beam search over all images and beams at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from legenda.decoding.common import Decodable, Decoded, memory_of, rule_of
from legenda.decoding.decoder import DecodingRule
from legenda.decoding.steps import Stepper
from legenda.errors import UserError
from legenda.regions import Memory, Regions

GHOST = -1000.0
"""The sum that a place begins anew with once its caption was put aside, so low that open captions take the place."""


@torch.no_grad()
def beam_search(
    model: Decodable,
    images: Regions | Memory,
    *,
    beam_size: int = 3,
    max_length: int | None = None,
    length_penalty: float | None = None,
    temperature: float = 1.0,
    groups: int = 1,
    diversity: float = 0.5,
    results: int | None = None,
    need_attention: bool = False,
    rule: DecodingRule | None = None,
) -> Decoded:
    """The best captions found by keeping `beam_size` hypotheses per image, best first.

    A hypothesis is ranked by the sum of its log-probabilities and the length rule; what becomes of those that have
    ended, and which words are banned, the rule says. An image is done when none of its open hypotheses can enter the
    first `results` (all by default); the search stops when all images are done, or after `max_length` words. What is
    not given follows `rule`, which is `model.decoding` unless told.

    temperature: log-probabilities are divided by it and normalised again, but for the first word, as AoANet's release
    has it. groups: diverse beam search (Vijayakumar et al., 2018): the beams are dealt out to groups that choose one
    after the other, and a word loses `diversity` for each time that earlier groups have chosen it at the same place.
    `scores` then count these losses, `log_probs` do not, and the captions stand group by group.
    """
    if beam_size < 1:
        raise UserError(f"beam_size must be at least 1, not {beam_size}")
    results = beam_size if results is None else results
    if not 1 <= results <= beam_size:
        raise UserError(f"results must lie between 1 and beam_size={beam_size}, not {results}")
    if groups < 1 or beam_size % groups:
        raise UserError(f"groups={groups} must share out beam_size={beam_size} evenly")
    if temperature <= 0:
        raise UserError(f"temperature must be above 0, not {temperature}")
    rule = rule_of(model, rule, max_length=max_length, length_penalty=length_penalty)
    memory = memory_of(model, images)

    found: list[_Search] = []
    width = beam_size // groups
    for number in range(groups):
        penalty = _Penalty(found, diversity) if number else None
        stop_at = min(results, width) if number == groups - 1 else None
        search = _Search.begin(len(memory), memory.mask.device, rule)
        # All beams are equal before the first word, so the search starts with one and widens.
        stepper = Stepper(model.decoder, memory, 1, rule, beam=True, temperature=temperature)
        _run(stepper, search, width, penalty, stop_at, need_attention=need_attention)
        found.append(search)
    return _read_back(found, results)


def _run(
    stepper: Stepper,
    search: _Search,
    width: int,
    penalty: _Penalty | None,
    stop_at: int | None,
    *,
    need_attention: bool,
) -> None:
    """Searches for one group; it stops early when `stop_at` captions are certain, never when that is None."""
    rule = search.rule
    token, parents = torch.full_like(search.beams.lengths, rule.begin_id), None
    for step in range(rule.max_length):
        log_probs, looked = stepper.step(token, parents)
        if need_attention and looked is not None:
            search.looked.append(looked)
        ranked = log_probs if penalty is None else penalty.applied(log_probs, step)
        parents, token = search.advance(log_probs, ranked, step, width)
        if stop_at is None:  # groups that follow will look back at it
            search.history.append(search.beams.tokens)
        if stop_at is not None and search.decided(stop_at):
            return


@dataclass(frozen=True)
class _Penalty:
    """What words lose in a group because earlier groups have said them at the same place.

    As released, each group is one step behind the one before, so what counts is what the hypotheses of that group say
    at this place once they have gone on: by one step for the group before, by two for the one before that.
    """

    earlier: list[_Search]
    diversity: float

    def applied(self, log_probs: Float[Tensor, "B K V"], step: int) -> Float[Tensor, "B K V"]:
        """The log-probabilities less the penalty."""
        chosen = log_probs.new_zeros(log_probs.shape[0], log_probs.shape[2])
        for behind, search in enumerate(reversed(self.earlier), start=1):
            words = search.history[min(step + behind, len(search.history) - 1)][..., step]
            chosen.scatter_add_(1, words, torch.ones_like(words, dtype=chosen.dtype))
        return log_probs - self.diversity * chosen.unsqueeze(1)


@dataclass(frozen=True)
class _Captions:
    """Captions from their first word to their last, all of room for the longest.

    path: the row that each word was chosen in. total: what they are ranked by before the length rule.
    """

    tokens: Int[Tensor, "B K T"]
    log_probs: Float[Tensor, "B K T"]
    path: Int[Tensor, "B K T"]
    totals: Float[Tensor, "B K"]
    lengths: Int[Tensor, "B K"]

    def pick(self, rows: Int[Tensor, "B W"]) -> _Captions:
        """Those of the named rows of each image."""
        long = rows.unsqueeze(-1).expand(-1, -1, self.tokens.shape[-1])
        return _Captions(
            self.tokens.gather(1, long),
            self.log_probs.gather(1, long),
            self.path.gather(1, long),
            self.totals.gather(1, rows),
            self.lengths.gather(1, rows),
        )

    def beside(self, other: _Captions) -> _Captions:
        """These and others of the same images."""
        return _Captions(*(torch.cat(pair, dim=1) for pair in zip(_parts(self), _parts(other), strict=True)))


def _parts(captions: _Captions) -> tuple[Tensor, ...]:
    return captions.tokens, captions.log_probs, captions.path, captions.totals, captions.lengths


class _Search:
    """The hypotheses of one group, best first, which of them have ended, and the captions that were put aside."""

    def __init__(self, beams: _Captions, ended: Bool[Tensor, "B K"], aside: _Captions, rule: DecodingRule) -> None:
        self.beams, self.ended, self.aside, self.rule = beams, ended, aside, rule
        self.ghosts = ended  # places that go on only because nothing better has taken them
        self.history: list[Tensor] = []
        """The words of all hypotheses after each step, `(B, K, T)`, where later groups read them."""
        self.looked: list[Tensor] = []
        """Where each row looked in each step."""

    @staticmethod
    def begin(images: int, device: torch.device, rule: DecodingRule) -> _Search:
        def empty(rows: int) -> _Captions:
            numbers = torch.zeros(images, rows, rule.max_length, dtype=torch.long, device=device)
            zeros = torch.zeros(images, rows, device=device)
            return _Captions(numbers + rule.end_id, numbers.float(), numbers, zeros, zeros.long())

        return _Search(empty(1), torch.zeros(images, 1, dtype=torch.bool, device=device), empty(0), rule)

    @property
    def width(self) -> int:
        return self.ended.shape[1]

    def advance(
        self, log_probs: Float[Tensor, "B K V"], ranked: Float[Tensor, "B K V"], step: int, width: int
    ) -> tuple[Int[Tensor, "B W"], Int[Tensor, "B W"]]:
        """Takes the best `width` continuations by `ranked`; gives the rows they come from and their words."""
        rule = self.rule
        # The words of a row are ranked as they are likely, so only its best `width` can be among the best of all.
        ranked, words = ranked.topk(min(width, ranked.shape[-1]), dim=-1)
        said = log_probs.gather(-1, words)
        if rule.finished == "compete":  # an ended hypothesis has one continuation, which changes nothing
            held = self.ended.unsqueeze(-1)
            unchanged = torch.full_like(said[:1, :1], float("-inf"))
            unchanged[..., 0] = 0.0
            ranked, said = torch.where(held, unchanged, ranked), torch.where(held, unchanged, said)
            words = words.masked_fill(held, rule.end_id)
            lengths = self.beams.lengths + ~self.ended
        else:
            lengths = self.beams.lengths + 1
        totals = self.beams.totals.to(ranked.dtype).unsqueeze(-1) + ranked
        ranks = _rank(totals, lengths.unsqueeze(-1), rule).flatten(1)
        best = ranks.topk(min(width, ranks.shape[1]), dim=1).indices
        rows, words = best // ranked.shape[-1], words.flatten(1).gather(1, best)
        said = said.flatten(1).gather(1, best)
        beams = self.beams.pick(rows)
        beams.tokens[..., step] = words
        beams.path[..., step] = rows
        kept = beams.log_probs.to(said.dtype)
        kept[..., step] = said
        totals, lengths = totals.flatten(1).gather(1, best), lengths.gather(1, rows)
        self.beams = _Captions(beams.tokens, kept, beams.path, totals, lengths)
        ends = words == rule.end_id
        if rule.finished == "compete":
            self.ended = self.ended.gather(1, rows) | ends
        else:
            self.ghosts = self.ghosts.gather(1, rows)
            self._put_aside(ends & ~self.ghosts, width)
            self.ghosts = self.ghosts | ends
            self.ended = ends
            self.beams = replace(self.beams, totals=self.beams.totals.masked_fill(ends, GHOST))
        return rows, words

    def _put_aside(self, which: Bool[Tensor, "B K"], width: int) -> None:
        """Keeps the best `width` of the captions put aside so far and those of `which`."""
        totals = self.beams.totals.masked_fill(~which, float("-inf"))
        aside = self.aside.beside(replace(self.beams, totals=totals))
        ranks = _rank(aside.totals, aside.lengths, self.rule)
        self.aside = aside.pick(ranks.topk(min(width, ranks.shape[1]), dim=1).indices)

    def decided(self, results: int) -> bool:
        """Whether no open hypothesis of any image can still enter, or change, the first `results`.

        A sum of log-probabilities only falls, and the longest caption is divided by most: that bounds each of them.
        """
        if self.rule.finished == "compete":
            done, open_ones = self.beams, ~self.ended
            certain = self.ended[:, :results].all(dim=1)
        else:
            done, open_ones = self.aside, ~self.ghosts
            certain = True
        if done.totals.shape[1] < results:
            return False
        longest = torch.full_like(self.beams.lengths, self.rule.max_length)
        bound = _rank(self.beams.totals, longest, self.rule).masked_fill(~open_ones, float("-inf")).amax(dim=1)
        last = _rank(done.totals, done.lengths, self.rule)[:, results - 1]
        return bool((certain & (last >= bound) & ~last.isneginf()).all())

    def captions(self) -> _Captions:
        """The captions found, best first: those put aside and, after the longest, the ones still open."""
        if self.rule.finished == "aside":
            self._put_aside(~self.ghosts, self.width)
            return self.aside
        return self.beams


def _rank(totals: Tensor, lengths: Tensor, rule: DecodingRule) -> Tensor:
    if rule.length_penalty == 0:
        return totals
    lengths = lengths.to(totals.dtype)
    return totals / (lengths if rule.length_rule == "power" else (5 + lengths) / 6) ** rule.length_penalty


def _read_back(searches: list[_Search], results: int) -> Decoded:
    """The first `results` captions, group by group, cut to the longest, with where each word looked."""
    rule = searches[0].rule
    groups = [search.captions() for search in searches]
    T = max(int(found.lengths.max()) for found in groups)
    decoded = [_decoded(found, search.looked, T, rule) for found, search in zip(groups, searches, strict=True)]
    attention = [found.attention for found in decoded if found.attention is not None]
    return Decoded(
        torch.cat([found.tokens for found in decoded], dim=1)[:, :results],
        torch.cat([found.log_probs for found in decoded], dim=1)[:, :results],
        torch.cat([found.scores for found in decoded], dim=1)[:, :results],
        torch.cat(attention, dim=1)[:, :results] if attention else None,
    )


def _decoded(captions: _Captions, looked: list[Tensor], T: int, rule: DecodingRule) -> Decoded:
    scores = _rank(captions.totals, captions.lengths, rule)
    filler = scores.isneginf().unsqueeze(-1)
    alive = (torch.arange(T, device=scores.device) < captions.lengths.unsqueeze(-1)) & ~filler
    attention = None
    if looked:
        image = torch.arange(len(scores), device=scores.device).unsqueeze(1)
        seen = [looked[min(step, len(looked) - 1)][image, captions.path[..., step]] for step in range(T)]
        attention = torch.stack(seen, dim=2) * alive[..., None, None]
    tokens = captions.tokens[..., :T].masked_fill(~alive, rule.end_id)
    return Decoded(tokens, captions.log_probs[..., :T].masked_fill(~alive, 0.0), scores, attention)
