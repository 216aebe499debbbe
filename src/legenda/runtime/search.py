"""Beam search, greedy decoding and sampling in NumPy, token for token the searches of `legenda.decoding`.

An exported decoder is a function of tokens and a state: arrays by name, of which those named `state.*` have a row for
each hypothesis, `(B, K, ...)`, and all others belong to the image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol
from zlib import crc32

import numpy as np

from legenda.errors import ConfigError, DataError
from legenda.runtime.settings import GenerationConfig

__all__ = ["SearchOutput"]

State = dict[str, np.ndarray]
ROWS = "state."
"""The prefix of names of arrays that have a row for each hypothesis."""


class Decode(Protocol):
    """One step of a decoder: the logits `(B, K, V)` of the tokens after `tokens` `(B, K)`, and the next state.

    The second output is the attention weights `(B, K, H, N)`, or None where they are not needed.
    """

    def __call__(
        self, tokens: np.ndarray, state: State, *, need_attention: bool
    ) -> tuple[np.ndarray, np.ndarray | None, State]: ...


@dataclass(frozen=True, eq=False)
class SearchOutput:
    """K generated sequences for each of B images; those of beam search are sorted by score, best first.

    tokens: ids `(B, K, T)` up to eos, then padding. log_probs: the log-probability of each token `(B, K, T)`, 0 after
    eos. scores: what the search ranks by `(B, K)`, -inf for rows without a sequence. attention: weights of the step
    that chose each token over the regions `(B, K, T, H, N)`, 0 after eos; None unless requested.
    """

    tokens: np.ndarray
    log_probs: np.ndarray
    scores: np.ndarray
    attention: np.ndarray | None = None

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> SearchOutput:
        """Return the output with a function applied to every array."""
        values: Any = (None if value is None else function(value) for value in vars(self).values())
        return SearchOutput(*values)

    @staticmethod
    def join(outputs: Sequence[SearchOutput]) -> SearchOutput:
        """Return the rows of all outputs of the same images, one output after the other."""
        columns = zip(*(vars(output).values() for output in outputs), strict=True)
        values: Any = (None if rows[0] is None else np.concatenate(rows, axis=1) for rows in columns)
        return SearchOutput(*values)

    def sort_rows(self, keys: np.ndarray, count: int) -> SearchOutput:
        """Return the `count` rows of each image with the largest keys `(B, K)`, largest first."""
        best = np.argsort(-keys, axis=1, kind="stable")[:, :count]
        return self.map(lambda rows: _pick(rows, best))


def search(
    decode: Decode,
    state: State,
    num_images: int,
    config: GenerationConfig,
    *,
    num_captions: int = 1,
    names: Sequence[str] | None = None,
    need_attention: bool = False,
) -> SearchOutput:
    """Generate `num_captions` sequences per image: the best of a beam search, or samples in the order drawn.

    state: of one empty row per image. names: of the images, by default their positions; the samples of an image follow
    from its name and the seed, not from its batch.
    Sequences of diverse beam search are sorted over all groups. Raise ConfigError where no sequence has all required
    words, and DataError where scores are NaN or infinite.
    """
    if config.do_sample:
        seeds = [f"{config.seed} {name}" for name in names or range(num_images)]
        streams = [np.random.RandomState(crc32(seed.encode(errors="surrogatepass"))) for seed in seeds]

        def choose(log_probs: np.ndarray) -> np.ndarray:
            scaled = log_probs / np.float32(config.temperature)
            return sample_tokens(top_k_top_p_filter(scaled, config.top_k, config.top_p), streams)

        return generate_rows(decode, state, num_images, num_captions, config, choose, need_attention=need_attention)
    is_diverse = config.num_beam_groups > 1
    returned = config.beam_size if is_diverse else num_captions
    output = beam_search(decode, state, num_images, config, returned, need_attention=need_attention)
    return output.sort_rows(output.scores, num_captions) if is_diverse else output


def greedy(
    decode: Decode, state: State, num_images: int, config: GenerationConfig, *, need_attention: bool = False
) -> SearchOutput:
    """Generate one sequence per image (K = 1) with the likeliest token at each step."""
    return generate_rows(
        decode, state, num_images, 1, config, lambda x: x.argmax(axis=-1), need_attention=need_attention
    )


def generate_rows(
    decode: Decode,
    state: State,
    num_images: int,
    num_rows: int,
    config: GenerationConfig,
    choose: Callable[[np.ndarray], np.ndarray],
    *,
    need_attention: bool = False,
) -> SearchOutput:
    """Generate `num_rows` sequences per image, each on its own; choose: returns tokens of log-probabilities."""
    token = np.full((num_images, num_rows), config.bos_token_id)
    finished = np.zeros(token.shape, bool)
    tokens, token_log_probs, unfinished, weights = [], [], [], []
    stepper = _Stepper(decode, state, token.shape, config, beam=False, need_attention=need_attention)
    for _ in range(config.max_length):
        log_probs, attention = stepper.step(token)
        token = np.where(finished, config.eos_token_id, choose(log_probs))
        tokens.append(token)
        token_log_probs.append(np.where(finished, 0, _take(log_probs, token[..., np.newaxis])[..., 0]))
        unfinished.append(~finished)
        if attention is not None:
            weights.append(attention)
        finished = finished | (token == config.eos_token_id)
        if finished.all():
            break
    mask, log_probs = np.stack(unfinished, axis=-1), np.stack(token_log_probs, axis=-1)
    scores = log_probs.sum(axis=-1)
    _check_scores(scores)
    attention = np.stack(weights, axis=2) * mask[..., np.newaxis, np.newaxis] if weights else None
    return SearchOutput(np.where(mask, np.stack(tokens, axis=-1), config.padding_id), log_probs, scores, attention)


def beam_search(
    decode: Decode,
    state: State,
    num_images: int,
    config: GenerationConfig,
    num_return_sequences: int,
    *,
    need_attention: bool = False,
) -> SearchOutput:
    """Generate the best sequences of each image by keeping `beam_size` hypotheses; see `decoding.beam_search`.

    With several groups of beams the output is sorted within each group only.
    """
    if config.required_tokens and config.num_beam_groups > 1:
        raise ConfigError("words are required of one group of beams; leave num_beam_groups or the words out")
    groups: list[_BeamGroup] = []
    num_beams = config.beam_size // config.num_beam_groups
    for index in range(config.num_beam_groups):
        # groups before the last run to the end: those after them read all their tokens
        stop_at = min(num_return_sequences, num_beams) if index == config.num_beam_groups - 1 else None
        group = (_ConstrainedGroup if config.required_tokens else _BeamGroup)(num_images, config)
        stepper = _Stepper(decode, state, (num_images, 1), config, True, need_attention=need_attention)
        token, parents = np.full((num_images, 1), config.bos_token_id), None
        for step in range(config.max_length):
            log_probs, weights = stepper.step(token, parents)
            if weights is not None:
                group.weights.append(weights)
            scores = _penalize(log_probs, groups, step, config.diversity_penalty) if groups else log_probs
            parents, token = group.advance(log_probs, scores, step, num_beams)
            if stop_at is None:
                group.history.append(group.beams.tokens)
            elif group.is_done(stop_at):
                break
        groups.append(group)
    output = SearchOutput.join(_to_outputs(groups)).map(lambda rows: rows[:, :num_return_sequences])
    _check_scores(output.scores)
    return output


class _Stepper:
    """Run a decoder token by token, keep its state in between, and apply the rules of the configuration."""

    def __init__(
        self,
        decode: Decode,
        state: State,
        shape: tuple[int, int],
        config: GenerationConfig,
        beam: bool,
        *,
        need_attention: bool = False,
    ) -> None:
        """Start with empty rows, `shape[1]` for each of `shape[0]` images."""
        self.decode, self.config = decode, config
        self.temperature = np.float32(config.temperature if beam else 1)  # of all tokens but the first
        self.state = state if shape[1] == 1 else _reorder(state, np.zeros(shape, np.int64))
        self.need_attention = need_attention
        self.trigram_penalty = 0.0 if beam else config.trigram_penalty
        self.history: np.ndarray | None = None
        """The tokens of the rows `(B, K, t)`; None before the first."""
        self.repeat_sets: np.ndarray | None = None
        self.suppressed = list(config.suppress_tokens + (config.beam_suppress_tokens if beam else ()))

    def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the log-probabilities `(B, K, V)` of the tokens after `tokens` `(B, K)`, and the attention weights.

        parents: the earlier row that each row of `tokens` continues, by default the row of the same index.
        """
        state = self.state if parents is None else _reorder(self.state, parents)
        logits, attention, self.state = self.decode(tokens, state, need_attention=self.need_attention)
        log_probs = log_softmax(logits)
        if self.history is not None and self.temperature != 1:
            log_probs = log_softmax(log_probs / self.temperature)
        log_probs[..., self.suppressed] = -np.inf
        if self.history is None:
            self.history = np.zeros((*tokens.shape, 0), np.int64)
            return log_probs, attention
        if self.config.no_immediate_repeat:
            np.put_along_axis(log_probs, tokens[..., np.newaxis], -np.inf, axis=-1)
        if self.config.forbidden_last_tokens:
            forbidden = np.isin(tokens, self.config.forbidden_last_tokens)
            log_probs[forbidden, self.config.eos_token_id] = -np.inf
        history = self.history if parents is None else _pick(self.history, parents)
        self.history = np.concatenate([history, tokens[..., np.newaxis]], axis=-1)
        if self.trigram_penalty:
            np.subtract.at(log_probs, _repeated_ngrams(self.history, 3), np.float32(self.trigram_penalty))
        if self.config.no_repeat_ngram_size:
            log_probs[_repeated_ngrams(self.history, self.config.no_repeat_ngram_size)] = -np.inf
        if self.config.no_repeat_sets:
            if self.repeat_sets is None:
                self.repeat_sets = self.config.repeat_sets(log_probs.shape[-1])
            said = np.zeros((*tokens.shape, len(self.config.no_repeat_sets) + 1), bool)
            np.put_along_axis(said, self.repeat_sets[self.history], True, axis=-1)
            said[..., -1] = False
            log_probs[said[..., self.repeat_sets]] = -np.inf
        return log_probs, attention


@dataclass(frozen=True, eq=False)
class _Hypotheses:
    """K hypotheses for each image, with capacity for the longest; the fields are those of `decoding.beam.Hypotheses`.

    tokens, log_probs, parent_beams: `(B, K, T)`; sum_log_probs, lengths: `(B, K)`.
    """

    tokens: np.ndarray
    log_probs: np.ndarray
    parent_beams: np.ndarray
    sum_log_probs: np.ndarray
    lengths: np.ndarray

    @staticmethod
    def empty(num_images: int, num_beams: int, config: GenerationConfig) -> _Hypotheses:
        shape = (num_images, num_beams, config.max_length)
        zeros = np.zeros(shape, np.int64)
        sums = np.zeros(shape[:2], np.float32)
        return _Hypotheses(zeros + config.eos_token_id, np.zeros(shape, np.float32), zeros, sums, zeros[..., 0].copy())

    def pick(self, beams: np.ndarray) -> _Hypotheses:
        return _Hypotheses(*(_pick(getattr(self, field.name), beams) for field in fields(self)))

    def concat(self, other: _Hypotheses) -> _Hypotheses:
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return _Hypotheses(*(np.concatenate(pair, axis=1) for pair in pairs))

    def scores(self, config: GenerationConfig) -> np.ndarray:
        return _normalize(self.sum_log_probs, self.lengths, config)


RELEASED_SCORE = np.float32(-1000)
"""Sum of log-probabilities from which a released slot goes on: so low that unfinished hypotheses take the slot."""


class _BeamGroup:
    """The beams of one group, best first, and, where finished beams are released, the finished hypotheses."""

    def __init__(self, num_images: int, config: GenerationConfig) -> None:
        self.config = config
        self.beams = _Hypotheses.empty(num_images, 1, config)
        self.finished_hypotheses = _Hypotheses.empty(num_images, 0, config)
        self.is_finished = np.zeros((num_images, 1), bool)
        self.released = self.is_finished
        """Slots whose hypothesis was released; what follows in them is no hypothesis of its own."""
        self.history: list[np.ndarray] = []
        """Tokens of all hypotheses after each step, kept for the groups that follow."""
        self.weights: list[np.ndarray] = []
        """Cross-attention weights of each step `(B, K, H, N)`."""

    def advance(
        self, log_probs: np.ndarray, scores: np.ndarray, step: int, num_beams: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Replace the hypotheses by their `num_beams` best continuations; return their parents and their tokens."""
        config = self.config
        tokens = largest(scores, num_beams)
        scores, log_probs = _take(scores, tokens), _take(log_probs, tokens)
        lengths = self.beams.lengths + 1
        if config.finished_beams == "keep":  # a finished hypothesis has one continuation, which leaves it as it is
            is_finished = self.is_finished[..., np.newaxis]
            eos_only = np.full(scores.shape[-1], -np.inf, np.float32)
            eos_only[0] = 0
            scores, log_probs = np.where(is_finished, eos_only, scores), np.where(is_finished, eos_only, log_probs)
            tokens = np.where(is_finished, config.eos_token_id, tokens)
            lengths = self.beams.lengths + ~self.is_finished
        sums = self.beams.sum_log_probs[..., np.newaxis] + scores
        ranked = _normalize(sums, lengths[..., np.newaxis], config)
        best = largest(_flat(ranked), num_beams)
        parents, tokens = best // scores.shape[-1], _take(_flat(tokens), best)
        chosen = _take(_flat(log_probs), best), _take(_flat(sums), best), _take(lengths, parents)
        self._append(parents, tokens, *chosen, step)
        ends = tokens == config.eos_token_id
        if config.finished_beams == "keep":
            self.is_finished = _take(self.is_finished, parents) | ends
        else:
            self.released = _take(self.released, parents)
            self._add_finished(ends & ~self.released, num_beams)
            self.released = self.released | ends
            self.is_finished = ends
            sums = np.where(ends, RELEASED_SCORE, self.beams.sum_log_probs)
            self.beams = replace(self.beams, sum_log_probs=sums)
        return parents, tokens

    def _append(
        self,
        parents: np.ndarray,
        tokens: np.ndarray,
        log_probs: np.ndarray,
        sum_log_probs: np.ndarray,
        lengths: np.ndarray,
        step: int,
    ) -> None:
        """Make hypotheses of the parents and their next tokens."""
        beams = self.beams.pick(parents)
        beams.tokens[..., step], beams.log_probs[..., step], beams.parent_beams[..., step] = tokens, log_probs, parents
        self.beams = replace(beams, sum_log_probs=sum_log_probs, lengths=lengths)

    def _add_finished(self, which: np.ndarray, num_beams: int) -> None:
        """Keep the best `num_beams` of the finished hypotheses and the beams of `which`."""
        sums = np.where(which, self.beams.sum_log_probs, np.float32(-np.inf))
        candidates = self.finished_hypotheses.concat(replace(self.beams, sum_log_probs=sums))
        self.finished_hypotheses = candidates.pick(largest(candidates.scores(self.config), num_beams))

    def is_done(self, count: int) -> bool:
        """Return whether no unfinished hypothesis can enter, or change, the first `count` of any image.

        A sum of log-probabilities only decreases, and the longest hypothesis is divided by most: this bounds the scores
        of all continuations.
        """
        if self.config.finished_beams == "keep":
            finished, unfinished = self.beams, ~self.is_finished
            all_ended = self.is_finished[:, :count].all(axis=1)
        else:
            finished, unfinished, all_ended = self.finished_hypotheses, ~self.released, True
        if finished.sum_log_probs.shape[1] < count:
            return False
        bounds = _normalize(self.beams.sum_log_probs, np.array(self.config.max_length), self.config)
        best_bound = np.where(unfinished, bounds, -np.inf).max(axis=1)
        last = finished.scores(self.config)[:, count - 1]
        return bool((all_ended & (last >= best_bound) & ~np.isneginf(last)).all())

    def finalize(self) -> _Hypotheses:
        """Return the hypotheses, best first; unfinished ones of the greatest length count as finished."""
        if self.config.finished_beams == "release":
            self._add_finished(~self.released, self.is_finished.shape[1])
            return self.finished_hypotheses
        return self.beams


MAX_SETS = 6
"""Sets of tokens, of which each doubles the number of beams."""


class _ConstrainedGroup(_BeamGroup):
    """Beams of which each sequence has, of each set of tokens, at least one (Anderson et al., EMNLP 2017).

    The sets that a hypothesis has satisfied are the state of a finite automaton, and every state has a beam of its own.
    The beams of the last state, with every set satisfied, come first; finished beams are kept.
    """

    def __init__(self, num_images: int, config: GenerationConfig) -> None:
        super().__init__(num_images, config.replace(finished_beams="keep"))
        sets = config.required_tokens
        if len(sets) > MAX_SETS:
            raise ConfigError(f"at most {MAX_SETS} sets of words can be required, not {len(sets)}; name fewer")
        self._last = 2 ** len(sets) - 1
        self._states = np.zeros(1, np.int64)
        """The state of each beam, bit i for set i; the same for all images."""

    def advance(
        self, log_probs: np.ndarray, scores: np.ndarray, step: int, num_beams: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Replace the hypotheses by the `num_beams` best continuations in each state; see `_BeamGroup.advance`."""
        config, V = self.config, scores.shape[-1]
        bits = np.zeros(V, np.int64)
        for number, tokens in enumerate(config.required_tokens):
            bits[list(tokens)] |= 1 << number
        only_eos = np.full(V, -np.inf, np.float32)
        only_eos[config.eos_token_id] = 0
        is_finished = self.is_finished[..., np.newaxis]
        scores, log_probs = (np.where(is_finished, only_eos, values) for values in (scores, log_probs))
        scores[:, self._states != self._last, config.eos_token_id] = -np.inf
        sums = self.beams.sum_log_probs[..., np.newaxis] + scores
        lengths = self.beams.lengths + ~self.is_finished
        ranked = _normalize(sums, lengths[..., np.newaxis], config)
        following = self._states[:, np.newaxis] | bits  # (K, V)
        order = np.arange(self._last, -1, -1)
        chosen = [_find_largest(_flat(np.where(following == state, ranked, -np.inf)), num_beams) for state in order]
        values, best = (np.concatenate(parts, axis=1) for parts in zip(*chosen, strict=True))
        parents, tokens = best // V, best % V
        sums = np.where(np.isneginf(values), np.float32(-np.inf), _take(_flat(sums), best))
        self._append(parents, tokens, _take(_flat(log_probs), best), sums, _take(lengths, parents), step)
        self.is_finished = _take(self.is_finished, parents) | (tokens == config.eos_token_id)
        self._states = np.repeat(order, num_beams)
        return parents, tokens

    def finalize(self) -> _Hypotheses:
        """Return the hypotheses of the last state, best first; raise ConfigError where an image has none."""
        count = len(self._states) // (self._last + 1)
        hypotheses = self.beams.pick(np.broadcast_to(np.arange(count), (len(self.is_finished), count)))
        if np.isneginf(hypotheses.sum_log_probs[:, 0]).any():
            raise ConfigError(
                f"no caption of at most {self.config.max_length} tokens holds all the required words; name fewer of "
                "them, or search with more beams"
            )
        return hypotheses


def _penalize(log_probs: np.ndarray, earlier: Sequence[_BeamGroup], step: int, diversity_penalty: float) -> np.ndarray:
    """Return the log-probabilities minus the penalty for each time that an earlier group has chosen a token here.

    As in `decoding.beam.penalize`, each group is one step behind the one before it.
    """
    counts = np.zeros((log_probs.shape[0], log_probs.shape[2]), np.float32)
    for ahead, group in enumerate(reversed(earlier), start=1):
        tokens = group.history[min(step + ahead, len(group.history) - 1)][..., step]
        np.add.at(counts, (np.arange(len(tokens))[:, np.newaxis], tokens), 1)
    return log_probs - np.float32(diversity_penalty) * counts[:, np.newaxis]


def _to_outputs(groups: Sequence[_BeamGroup]) -> list[SearchOutput]:
    """Return the sequences of each group, cut to the longest of all, with their attention weights."""
    finalized = [group.finalize() for group in groups]
    T = max((int(hypotheses.lengths.max()) for hypotheses in finalized if hypotheses.lengths.size), default=0)
    return [_to_output(hypotheses, group, T) for hypotheses, group in zip(finalized, groups, strict=True)]


def _to_output(hypotheses: _Hypotheses, group: _BeamGroup, T: int) -> SearchOutput:
    config, weights = group.config, group.weights
    scores = hypotheses.scores(config)
    is_empty = np.isneginf(scores)[..., np.newaxis]  # no hypothesis was left for this row
    mask = (np.arange(T) < hypotheses.lengths[..., np.newaxis]) & ~is_empty
    attention = None
    if weights:
        parents = hypotheses.parent_beams
        steps = [_pick(weights[min(step, len(weights) - 1)], parents[..., step]) for step in range(T)]
        attention = np.stack(steps, axis=2) * mask[..., np.newaxis, np.newaxis]
    tokens = np.where(mask, hypotheses.tokens[..., :T], config.padding_id)
    tokens[..., :1] = np.where(is_empty, config.eos_token_id, tokens[..., :1])
    return SearchOutput(tokens, np.where(mask, hypotheses.log_probs[..., :T], np.float32(0)), scores, attention)


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Return the logarithm of the softmax over the last axis, a new array."""
    shifted = x - x.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


_FEW = 64
"""Values that are found one after the other in less time than it takes to sort all."""


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` largest values of the last axis, largest first; the first of equal ones leads.

    Where there are fewer values, all indices.
    """
    count = min(count, values.shape[-1])
    if count <= _FEW:
        found, indices = _find_largest(values, count)
        if not np.isneginf(found).any():
            return indices
    return np.argsort(-values, axis=-1, kind="stable")[..., :count]


def _find_largest(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `count` largest values of the last axis and their indices, largest first.

    Where fewer are above -inf, the others are -inf, with any index.
    """
    left, found, indices = values.copy(), [], []
    for _ in range(count):
        best = left.argmax(axis=-1)[..., np.newaxis]
        indices.append(best)
        found.append(_take(left, best))
        np.put_along_axis(left, best, -np.inf, axis=-1)
    return np.concatenate(found, axis=-1), np.concatenate(indices, axis=-1)


def sample_tokens(logits: np.ndarray, streams: Sequence[np.random.RandomState]) -> np.ndarray:
    """Draw a token for each row `(B, K)` with probability softmax(logits), with a stream of each image.

    The numbers are those of a `torch.Generator` of the same seed, so the samples are those of `decoding.sample`.
    """
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=-1, keepdims=True)
    cumulative = probabilities.cumsum(axis=-1, dtype=np.float64)
    total = cumulative[..., -1:]
    uniform = np.stack([_draw(stream, total.shape[1]) for stream in streams])[..., np.newaxis] * total
    below_total = np.minimum(uniform, np.nextafter(total, 0))  # the product may round up to it
    return np.minimum((cumulative <= below_total).sum(axis=-1), logits.shape[-1] - 1)


def _draw(stream: np.random.RandomState, count: int) -> np.ndarray:
    """Return uniform numbers in [0, 1) as torch.rand of float64 makes them of the same generator, MT19937."""
    high, low = stream.randint(0, 2**32, (count, 2), dtype=np.uint32).astype(np.uint64).T
    return (((high << np.uint64(32)) | low) & np.uint64(2**53 - 1)) * 2.0**-53


def top_k_top_p_filter(log_probs: np.ndarray, top_k: int | None, top_p: float | None) -> np.ndarray:
    """Return -inf for all but the `top_k` likeliest tokens, and then but the fewest whose probabilities reach `top_p`.

    None turns either off; the likeliest token is always kept.
    """
    if top_k is not None and top_k < log_probs.shape[-1]:
        kept = largest(log_probs, top_k)
        filtered = np.full_like(log_probs, -np.inf)
        np.put_along_axis(filtered, kept, _take(log_probs, kept), axis=-1)
        log_probs = filtered
    if top_p is not None and top_p < 1:
        tokens = np.argsort(-log_probs, axis=-1, kind="stable")
        probabilities = np.exp(log_softmax(_take(log_probs, tokens)))
        removed = probabilities.cumsum(axis=-1) - probabilities >= np.float32(top_p)
        removed[..., 0] = False
        is_removed = np.zeros_like(removed)
        np.put_along_axis(is_removed, tokens, removed, axis=-1)
        log_probs = np.where(is_removed, np.float32(-np.inf), log_probs)
    return log_probs


def _repeated_ngrams(tokens: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return image, row and token of each time that a token has followed the last `size - 1` tokens of its row."""
    if tokens.shape[-1] < size:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    ngrams = np.lib.stride_tricks.sliding_window_view(tokens, size, axis=-1)
    last = tokens[..., np.newaxis, tokens.shape[-1] - size + 1 :]
    image, row, position = np.nonzero((ngrams[..., :-1] == last).all(axis=-1))
    return image, row, ngrams[image, row, position, -1]


def _normalize(sums: np.ndarray, lengths: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Return the sums divided by the length penalty of `config`; the shapes broadcast."""
    if config.length_penalty == 0:
        return sums
    lengths = lengths.astype(np.float32)
    base = lengths if config.length_normalization == "power" else (5 + lengths) / 6
    return sums / base ** np.float32(config.length_penalty)


def _check_scores(scores: np.ndarray) -> None:
    """Raise DataError where a score of an image is NaN, or none is finite."""
    good = np.isfinite(scores).any(axis=1) & ~np.isnan(scores).any(axis=1)
    if not good.all():
        raise DataError(
            f"the scores of image {int(np.argmin(good))} of the batch are NaN or infinite; look for extreme values in "
            "its features"
        )


def _reorder(state: State, beams: np.ndarray) -> State:
    """Return the state of the rows `beams` `(B, W)` of each image."""
    return {name: _pick(value, beams) if name.startswith(ROWS) else value for name, value in state.items()}


def _pick(rows: np.ndarray, beams: np.ndarray) -> np.ndarray:
    """Return the rows `beams` `(B, W)` of each image of an array `(B, K, ...)`."""
    return rows[np.arange(len(beams))[:, np.newaxis], beams]


def _take(values: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values, indices, axis=-1)


def _flat(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1)
