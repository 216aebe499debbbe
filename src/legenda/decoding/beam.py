"""Beam search over all images and beams at once, in groups, and with sets of words of which each must occur."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from legenda.decoding.generation import (
    GenerationConfig,
    GenerationOutput,
    Stepper,
    SupportsGeneration,
    check_scores,
    encode_inputs,
    resolve_config,
)
from legenda.errors import ConfigError
from legenda.regions import Memory, Regions


@torch.no_grad()
def beam_search(
    model: SupportsGeneration,
    inputs: Regions | Memory | Tensor,
    *,
    num_return_sequences: int | None = None,
    need_attention: bool = False,
    generation_config: GenerationConfig | None = None,
    **overrides: object,
) -> GenerationOutput:
    """Generate the best sequences of each image by keeping `beam_size` hypotheses, best first.

    A hypothesis ranks by the sum of its log-probabilities, normalized by length as the configuration has it. The search
    stops when no unfinished hypothesis of any image can enter the first `num_return_sequences` (`beam_size` by
    default), or after `max_length` tokens. generation_config: by default `model.generation_config`; overrides: fields
    of it, such as beam_size=5 or max_length=16.

    The temperature divides all log-probabilities but those of the first token, as in AoANet's release; they are
    normalized again. With several `num_beam_groups` it is diverse beam search (Vijayakumar et al., 2018): groups of
    beams choose their tokens one after the other, and a token loses `diversity_penalty` for each time that earlier
    groups have chosen it at the same position. `scores` include this penalty, `log_probs` do not, and the output is
    sorted within each group only.

    Raise ConfigError for an unknown field and values out of range.
    """
    config = resolve_config(model, generation_config, overrides)
    beam_size, num_beam_groups = config.beam_size, config.num_beam_groups
    if num_return_sequences is None:
        num_return_sequences = beam_size
    if not 1 <= num_return_sequences <= beam_size:
        raise ConfigError(
            f"num_return_sequences must be between 1 and beam_size={beam_size}, not {num_return_sequences}"
        )
    if config.required_tokens and num_beam_groups > 1:
        raise ConfigError("words are required of one group of beams; leave num_beam_groups or the words out")
    memory = encode_inputs(model, inputs)

    groups: list[BeamGroup] = []
    num_beams = beam_size // num_beam_groups
    for index in range(num_beam_groups):
        # Groups before the last run to the end: those after them read all their tokens.
        stop_at = min(num_return_sequences, num_beams) if index == num_beam_groups - 1 else None
        kind = ConstrainedGroup if config.required_tokens else BeamGroup
        group = kind(len(memory), memory.mask.device, config)
        stepper = Stepper(model.decoder, memory, 1, config, beam=True)
        token, parents = torch.full_like(group.beams.lengths, config.bos_token_id), None
        for step in range(config.max_length):
            log_probs, weights = stepper.step(token, parents)
            if need_attention and weights is not None:
                group.attention_weights.append(weights)
            scores = penalize(log_probs, groups, step, config.diversity_penalty) if groups else log_probs
            parents, token = group.advance(log_probs, scores, step, num_beams)
            if stop_at is None:
                group.token_history.append(group.beams.tokens)
            elif group.is_done(stop_at):
                break
        groups.append(group)
    output = _backtrack(groups, num_return_sequences)
    check_scores(output.scores)
    return output


def penalize(
    log_probs: Float[Tensor, "B K V"], earlier: Sequence[BeamGroup], step: int, diversity_penalty: float
) -> Float[Tensor, "B K V"]:
    """Return the log-probabilities minus the penalty for each time that an earlier group has chosen a token here.

    As in the release, each group is one step behind the one before it, so what counts is the hypotheses of that group
    after further steps: one for the group before, two for the one before that, and so on.
    """
    counts = log_probs.new_zeros(log_probs.shape[0], log_probs.shape[2])
    for ahead, group in enumerate(reversed(earlier), start=1):
        tokens = group.token_history[min(step + ahead, len(group.token_history) - 1)][..., step]
        counts.scatter_add_(1, tokens, torch.ones_like(tokens, dtype=counts.dtype))
    return log_probs - diversity_penalty * counts.unsqueeze(1)


def _backtrack(groups: list[BeamGroup], num_return_sequences: int) -> GenerationOutput:
    """Return the first sequences, group by group, cut to the longest of all, with their attention weights."""
    finalized = [group.finalize() for group in groups]
    T = max((int(hypotheses.lengths.max()) for hypotheses in finalized if hypotheses.lengths.numel()), default=0)
    outputs = [_to_output(hypotheses, group, T) for hypotheses, group in zip(finalized, groups, strict=True)]
    return GenerationOutput.join(outputs).map(lambda rows: rows[:, :num_return_sequences])


def _to_output(hypotheses: Hypotheses, group: BeamGroup, T: int) -> GenerationOutput:
    config, weights = group.config, group.attention_weights
    scores = hypotheses.scores(config)
    is_empty = scores.isneginf().unsqueeze(-1)  # no hypothesis was left for this row
    token_mask = (torch.arange(T, device=scores.device) < hypotheses.lengths.unsqueeze(-1)) & ~is_empty
    attention = None
    if weights:
        image = torch.arange(len(scores), device=scores.device).unsqueeze(1)
        steps = [weights[min(step, len(weights) - 1)][image, hypotheses.parent_beams[..., step]] for step in range(T)]
        attention = torch.stack(steps, dim=2) * token_mask[..., None, None]
    tokens = hypotheses.tokens[..., :T].masked_fill(~token_mask, config.padding_id)
    tokens[..., :1] = tokens[..., :1].masked_fill(is_empty, config.eos_token_id)
    return GenerationOutput(tokens, hypotheses.log_probs[..., :T].masked_fill(~token_mask, 0.0), scores, attention)


RELEASED_SCORE = -1000.0
"""Sum of log-probabilities from which a released slot goes on: so low that unfinished hypotheses take the slot."""


@dataclass(frozen=True)
class Hypotheses:
    """K hypotheses for each image, with capacity for the longest.

    parent_beams: the beam that each token was chosen in; sum_log_probs: what hypotheses rank by before normalization by
    length, penalties of diverse beam search included; lengths: in tokens, eos included.
    """

    tokens: Int[Tensor, "B K T"]
    log_probs: Float[Tensor, "B K T"]
    parent_beams: Int[Tensor, "B K T"]
    sum_log_probs: Float[Tensor, "B K"]
    lengths: Int[Tensor, "B K"]

    @staticmethod
    def empty(num_images: int, num_beams: int, config: GenerationConfig, device: torch.device) -> Hypotheses:
        """Return hypotheses without tokens."""
        ids = torch.zeros(num_images, num_beams, config.max_length, dtype=torch.long, device=device)
        zeros = torch.zeros(num_images, num_beams, device=device)
        return Hypotheses(ids + config.eos_token_id, ids.float(), ids, zeros, zeros.long())

    def gather(self, beams: Int[Tensor, "B W"]) -> Hypotheses:
        """Return the hypotheses `beams` of each image."""
        index = beams.unsqueeze(-1).expand(-1, -1, self.tokens.shape[-1])
        values = (getattr(self, field.name) for field in fields(self))
        return Hypotheses(*(value.gather(1, index if value.dim() == 3 else beams) for value in values))

    def concat(self, other: Hypotheses) -> Hypotheses:
        """Return these hypotheses and then the others of the same images."""
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return Hypotheses(*(torch.cat(pair, dim=1) for pair in pairs))

    def scores(self, config: GenerationConfig) -> Float[Tensor, "B K"]:
        """Return the sums of log-probabilities normalized by length."""
        return normalize_by_length(self.sum_log_probs, self.lengths, config)


def normalize_by_length(sum_log_probs: Tensor, lengths: Tensor, config: GenerationConfig) -> Tensor:
    """Return the sums divided by the length penalty of `config`; the shapes broadcast."""
    if config.length_penalty == 0:
        return sum_log_probs
    lengths = lengths.to(sum_log_probs.dtype)
    base = lengths if config.length_normalization == "power" else (5 + lengths) / 6
    return sum_log_probs / base**config.length_penalty


class BeamGroup:
    """The beams of one group, best first, and, where finished beams are released, the finished hypotheses."""

    def __init__(self, num_images: int, device: torch.device, config: GenerationConfig) -> None:
        """Start with one empty hypothesis per image: all beams are equal before the first token."""
        self.config = config
        self.beams = Hypotheses.empty(num_images, 1, config, device)
        self.finished_hypotheses = Hypotheses.empty(num_images, 0, config, device)
        self.is_finished = torch.zeros(num_images, 1, dtype=torch.bool, device=device)
        self.released = self.is_finished
        """Slots whose hypothesis was released; what follows in them is no hypothesis of its own."""
        self.token_history: list[Int[Tensor, "B K T"]] = []
        """Tokens of all hypotheses after each step, kept for the groups that follow."""
        self.attention_weights: list[Float[Tensor, "B K H N"]] = []
        """Cross-attention weights of each step."""

    def advance(
        self, log_probs: Float[Tensor, "B K V"], scores: Float[Tensor, "B K V"], step: int, num_beams: int
    ) -> tuple[Int[Tensor, "B W"], Int[Tensor, "B W"]]:
        """Replace the hypotheses by their `num_beams` best continuations; return their parents and their tokens.

        log_probs, scores: of the next token; the scores, which may include penalties, are what is ranked.
        """
        config = self.config
        # Continuations of one hypothesis rank as their scores do, so its `num_beams` best are enough.
        scores, tokens = scores.topk(min(num_beams, scores.shape[-1]), dim=-1)
        log_probs = log_probs.gather(-1, tokens)
        if config.finished_beams == "keep":  # a finished hypothesis has one continuation, which leaves it as it is
            is_finished = self.is_finished.unsqueeze(-1)
            eos_only_log_probs = torch.full_like(log_probs[:1, :1], float("-inf"))
            eos_only_log_probs[..., 0] = 0.0
            scores = torch.where(is_finished, eos_only_log_probs, scores)
            log_probs = torch.where(is_finished, eos_only_log_probs, log_probs)
            tokens = tokens.masked_fill(is_finished, config.eos_token_id)
            lengths = self.beams.lengths + ~self.is_finished
        else:
            lengths = self.beams.lengths + 1
        sum_log_probs = self.beams.sum_log_probs.to(scores.dtype).unsqueeze(-1) + scores
        ranked = normalize_by_length(sum_log_probs, lengths.unsqueeze(-1), config).flatten(1)
        best = ranked.topk(min(num_beams, ranked.shape[1]), dim=1).indices
        parents, tokens = best // scores.shape[-1], tokens.flatten(1).gather(1, best)
        log_probs = log_probs.flatten(1).gather(1, best)
        sum_log_probs, lengths = sum_log_probs.flatten(1).gather(1, best), lengths.gather(1, parents)
        self._append(parents, tokens, log_probs, sum_log_probs, lengths, step)
        ends = tokens == config.eos_token_id
        if config.finished_beams == "keep":
            self.is_finished = self.is_finished.gather(1, parents) | ends
        else:
            self.released = self.released.gather(1, parents)
            self._add_finished(ends & ~self.released, num_beams)
            self.released = self.released | ends
            self.is_finished = ends
            released_sums = self.beams.sum_log_probs.masked_fill(ends, RELEASED_SCORE)
            self.beams = replace(self.beams, sum_log_probs=released_sums)
        return parents, tokens

    def _append(
        self, parents: Tensor, tokens: Tensor, log_probs: Tensor, sum_log_probs: Tensor, lengths: Tensor, step: int
    ) -> None:
        """Make hypotheses of the parents and their next tokens."""
        beams = self.beams.gather(parents)
        beams.tokens[..., step] = tokens
        beams.parent_beams[..., step] = parents
        all_log_probs = beams.log_probs.to(log_probs.dtype)
        all_log_probs[..., step] = log_probs
        self.beams = Hypotheses(beams.tokens, all_log_probs, beams.parent_beams, sum_log_probs, lengths)

    def _add_finished(self, which: Bool[Tensor, "B K"], num_beams: int) -> None:
        """Keep the best `num_beams` of the finished hypotheses and the beams of `which`."""
        sum_log_probs = self.beams.sum_log_probs.masked_fill(~which, float("-inf"))
        candidates = self.finished_hypotheses.concat(replace(self.beams, sum_log_probs=sum_log_probs))
        scores = candidates.scores(self.config)
        self.finished_hypotheses = candidates.gather(scores.topk(min(num_beams, scores.shape[1]), dim=1).indices)

    def is_done(self, num_return_sequences: int) -> bool:
        """Return whether no unfinished hypothesis can enter, or change, the first `num_return_sequences` of any image.

        A sum of log-probabilities only decreases, and the longest hypothesis is divided by most: this bounds the scores
        of all continuations.
        """
        if self.config.finished_beams == "keep":
            finished, unfinished = self.beams, ~self.is_finished
            all_ended = self.is_finished[:, :num_return_sequences].all(dim=1)
        else:
            finished, unfinished = self.finished_hypotheses, ~self.released
            all_ended = True
        if finished.sum_log_probs.shape[1] < num_return_sequences:
            return False
        max_lengths = torch.full_like(self.beams.lengths, self.config.max_length)
        bounds = normalize_by_length(self.beams.sum_log_probs, max_lengths, self.config)
        best_bound = bounds.masked_fill(~unfinished, float("-inf")).amax(dim=1)
        last = finished.scores(self.config)[:, num_return_sequences - 1]
        return bool((all_ended & (last >= best_bound) & ~last.isneginf()).all())

    def finalize(self) -> Hypotheses:
        """Return the hypotheses, best first; unfinished ones of the greatest length count as finished."""
        if self.config.finished_beams == "release":
            self._add_finished(~self.released, self.is_finished.shape[1])
            return self.finished_hypotheses
        return self.beams


MAX_SETS = 6
"""Sets of tokens, of which each doubles the number of beams."""


class ConstrainedGroup(BeamGroup):
    """Beams of which each sequence has, of each set of tokens, at least one (Anderson et al., EMNLP 2017).

    The sets that a hypothesis has satisfied are the state of a finite automaton. Every state has a beam of its own, so
    that hypotheses compete with those of the same state only, and with beams that are wide enough the search is exact.
    The beams of the last state, with every set satisfied, come first; finished beams are kept.
    """

    def __init__(self, num_images: int, device: torch.device, config: GenerationConfig) -> None:
        super().__init__(num_images, device, config.replace(finished_beams="keep"))
        sets = config.required_tokens
        if len(sets) > MAX_SETS:
            raise ConfigError(f"at most {MAX_SETS} sets of words can be required, not {len(sets)}; name fewer")
        self._sets = [torch.tensor(tokens, device=device) for tokens in sets]
        self._last = 2 ** len(sets) - 1
        self._states = torch.zeros(1, dtype=torch.long, device=device)
        """The state of each beam, bit i for set i; the same for all images."""

    def advance(
        self, log_probs: Float[Tensor, "B K V"], scores: Float[Tensor, "B K V"], step: int, num_beams: int
    ) -> tuple[Int[Tensor, "B W"], Int[Tensor, "B W"]]:
        """Replace the hypotheses by the `num_beams` best continuations in each state; see `BeamGroup.advance`."""
        config, V = self.config, scores.shape[-1]
        bits = torch.zeros(V, dtype=torch.long, device=scores.device)
        for number, tokens in enumerate(self._sets):
            bits[tokens] |= 1 << number
        only_eos = torch.full_like(scores[:1, :1], float("-inf"))
        only_eos[..., config.eos_token_id] = 0.0
        is_finished = self.is_finished.unsqueeze(-1)
        scores, log_probs = (torch.where(is_finished, only_eos, values) for values in (scores, log_probs))
        scores[..., config.eos_token_id].masked_fill_(self._states != self._last, float("-inf"))
        sum_log_probs = self.beams.sum_log_probs.to(scores.dtype).unsqueeze(-1) + scores
        lengths = self.beams.lengths + ~self.is_finished
        ranked = normalize_by_length(sum_log_probs, lengths.unsqueeze(-1), config)
        following = self._states.unsqueeze(-1) | bits  # (K, V)
        order = range(self._last, -1, -1)
        chosen = [self._best(ranked.masked_fill(following != state, float("-inf")), num_beams) for state in order]
        values, best = (torch.cat(parts, dim=1) for parts in zip(*chosen, strict=True))
        parents, tokens = best // V, best % V
        sums = sum_log_probs.flatten(1).gather(1, best).masked_fill(values.isneginf(), float("-inf"))
        chosen_log_probs = log_probs.flatten(1).gather(1, best)
        self._append(parents, tokens, chosen_log_probs, sums, lengths.gather(1, parents), step)
        self.is_finished = self.is_finished.gather(1, parents) | (tokens == config.eos_token_id)
        self._states = torch.tensor(order, device=scores.device).repeat_interleave(num_beams)
        return parents, tokens

    @staticmethod
    def _best(ranked: Float[Tensor, "B K V"], count: int) -> tuple[Tensor, Tensor]:
        """Return the values and indices of the best continuations, where there are fewer with values of -inf."""
        flat = ranked.flatten(1)
        values, best = flat.topk(min(count, flat.shape[1]), dim=1)
        missing = count - best.shape[1]
        return F.pad(values, (0, missing), value=float("-inf")), F.pad(best, (0, missing))

    def finalize(self) -> Hypotheses:
        """Return the hypotheses of the last state, best first; raise ConfigError where an image has none."""
        count = len(self._states) // (self._last + 1)
        hypotheses = self.beams.gather(
            torch.arange(count, device=self._states.device).expand(len(self.is_finished), -1)
        )
        if bool(hypotheses.sum_log_probs[:, 0].isneginf().any()):
            raise ConfigError(
                f"no caption of at most {self.config.max_length} tokens holds all the required words; name fewer of "
                "them, or search with more beams"
            )
        return hypotheses
