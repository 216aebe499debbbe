"""Generation token by token: the rules of a configuration, rows each on its own, and beam search.

One loop serves NumPy and PyTorch: a `Stepper` runs the decoder, whose log-probabilities stay arrays of the decoder's
library; the choices made from them are computed in NumPy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from legenda.errors import ConfigError, DataError
from legenda.runtime.settings import GenerationConfig

__all__ = ["SearchOutput"]


class _Array(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...


A = TypeVar("A", bound=_Array)
"""An array of the library that runs the decoder."""


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
        return self.map(lambda rows: pick_rows(rows, best))


class Stepper(ABC, Generic[A]):
    """Run a decoder token by token, keep its state in between, and apply the rules of the configuration.

    shape: images and rows of each. beam: suppress `beam_suppress_tokens` too, apply the temperature, to all tokens but
    the first as in AoANet's release, and no `trigram_penalty`. Log-probabilities are arrays of the decoder's library.
    """

    def __init__(self, shape: tuple[int, int], config: GenerationConfig, *, beam: bool) -> None:
        self.shape, self.config = shape, config
        self.temperature = config.temperature if beam else 1.0
        self.trigram_penalty = 0.0 if beam else config.trigram_penalty
        suppressed = config.suppress_tokens + (config.beam_suppress_tokens if beam else ())
        self.suppressed = self.own(np.array(suppressed, np.int64)) if suppressed else None
        self.history: np.ndarray | None = None
        """The tokens of the rows `(B, K, t)`; None before the first."""
        self.repeat_sets: np.ndarray | None = None

    @abstractmethod
    def decode(self, tokens: np.ndarray, parents: np.ndarray | None) -> tuple[A, A | None]:
        """Return log-probabilities `(B, K, V)`, in at least float32 and not shared, and attention `(B, K, H, N)`.

        The attention is None where it is not needed.
        """

    @abstractmethod
    def own(self, values: np.ndarray) -> A:
        """Return values as an array of the decoder's library."""

    @abstractmethod
    def to_numpy(self, values: A) -> np.ndarray:
        """Return an array of the decoder's library as one of NumPy."""

    @abstractmethod
    def normalize(self, scores: A) -> A:
        """Return scores as log-probabilities, by a softmax over the last axis."""

    @abstractmethod
    def pick(self, log_probs: A, tokens: np.ndarray) -> np.ndarray:
        """Return the log-probability `(B, K)` of one token of each row."""

    @abstractmethod
    def top(
        self, log_probs: A, scores: A, count: int, allowed: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the `count` tokens `(B, K, count)` with the largest scores, their scores and log-probabilities.

        allowed: tokens of each row `(K, V)`; others have a score of -inf.
        """

    def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[A, A | None]:
        """Return the log-probabilities `(B, K, V)` of the tokens after `tokens` `(B, K)`, and the attention weights.

        Suppressed tokens have -inf; the others are not normalized again. parents: the earlier row that each row of
        `tokens` continues, by default the row of the same index.
        """
        decoded: Any = self.decode(tokens, parents)
        log_probs, attention = decoded
        history, config = self.history, self.config
        if history is not None and self.temperature != 1:
            log_probs = self.normalize(log_probs / self.temperature)
        if self.suppressed is not None:
            log_probs[..., self.suppressed] = -np.inf
        if history is None:
            self.history = np.zeros((*tokens.shape, 0), np.int64)
            return log_probs, attention
        if config.no_immediate_repeat:
            image, row = np.indices(tokens.shape)
            self._block(log_probs, image, row, tokens)
        if config.forbidden_last_tokens:
            image, row = np.nonzero(np.isin(tokens, config.forbidden_last_tokens))
            self._block(log_probs, image, row, np.full_like(row, config.eos_token_id))
        history = history if parents is None else pick_rows(history, parents)
        self.history = history = np.concatenate([history, tokens[..., np.newaxis]], axis=-1)
        if self.trigram_penalty:
            ngrams, counts = np.unique(_repeated_ngrams(history, 3), axis=1, return_counts=True)
            index = tuple(self.own(part) for part in ngrams)
            log_probs[index] -= self.own((self.trigram_penalty * counts).astype(np.float32))
        if config.no_repeat_ngram_size:
            self._block(log_probs, *_repeated_ngrams(history, config.no_repeat_ngram_size))
        if config.no_repeat_sets:
            if self.repeat_sets is None:
                self.repeat_sets = config.repeat_sets(log_probs.shape[-1])
            said = np.zeros((*tokens.shape, len(config.no_repeat_sets) + 1), bool)
            np.put_along_axis(said, self.repeat_sets[history], True, axis=-1)
            said[..., -1] = False
            self._block(log_probs, said[..., self.repeat_sets])
        return log_probs, attention

    def _block(self, log_probs: Any, *index: np.ndarray) -> None:
        log_probs[tuple(self.own(part) for part in index)] = -np.inf


def generate_rows(stepper: Stepper[A], choose: Callable[[A], np.ndarray]) -> SearchOutput:
    """Generate a sequence for each row of the stepper, each on its own.

    choose: returns tokens `(B, K)` of log-probabilities `(B, K, V)`.
    """
    config = stepper.config
    token = np.full(stepper.shape, config.bos_token_id)
    finished = np.zeros(stepper.shape, bool)
    tokens, token_log_probs, unfinished, weights = [], [], [], []
    for _ in range(config.max_length):
        log_probs, attention = stepper.step(token)
        token = np.where(finished, config.eos_token_id, choose(log_probs))
        tokens.append(token)
        token_log_probs.append(np.where(finished, 0, stepper.pick(log_probs, token)))
        unfinished.append(~finished)
        if attention is not None:
            weights.append(attention)
        finished = finished | (token == config.eos_token_id)
        if finished.all():
            break
    mask, log_probs = np.stack(unfinished, axis=-1), np.stack(token_log_probs, axis=-1)
    scores = log_probs.sum(axis=-1)
    check_scores(scores)
    attention = None
    if weights:
        attention = np.stack([*map(stepper.to_numpy, weights)], axis=2) * mask[..., np.newaxis, np.newaxis]
    return SearchOutput(np.where(mask, np.stack(tokens, axis=-1), config.padding_id), log_probs, scores, attention)


def search_beams(start: Callable[[], Stepper[A]], config: GenerationConfig, num_captions: int) -> SearchOutput:
    """Return the best `num_captions` sequences of a beam search, sorted over all groups; see `beam_search`."""
    is_diverse = config.num_beam_groups > 1
    output = beam_search(start, config, config.beam_size if is_diverse else num_captions)
    return output.sort_rows(output.scores, num_captions) if is_diverse else output


def beam_search(
    start: Callable[[], Stepper[A]], config: GenerationConfig, num_return_sequences: int | None = None
) -> SearchOutput:
    """Generate the best sequences of each image by keeping `beam_size` hypotheses; see `decoding.beam_search`.

    start: returns a stepper with one empty row of each image, once for each group of beams. With several groups the
    output is sorted within each group only. Raise ConfigError for words that are required of several groups.
    """
    count = config.beam_size if num_return_sequences is None else num_return_sequences
    if not 1 <= count <= config.beam_size:
        raise ConfigError(f"num_return_sequences must be between 1 and beam_size={config.beam_size}, not {count}")
    if config.required_tokens and config.num_beam_groups > 1:
        raise ConfigError("words are required of one group of beams; leave num_beam_groups or the words out")
    groups: list[_BeamGroup] = []
    num_beams = config.beam_size // config.num_beam_groups
    for index in range(config.num_beam_groups):
        # groups before the last run to the end: those after them read all their tokens
        stop_at = min(count, num_beams) if index == config.num_beam_groups - 1 else None
        stepper = start()
        group = (_ConstrainedGroup if config.required_tokens else _BeamGroup)(stepper)
        token, parents = np.full(stepper.shape, config.bos_token_id), None
        for step in range(config.max_length):
            log_probs, weights = stepper.step(token, parents)
            if weights is not None:
                group.weights.append(weights)
            scores: Any = log_probs
            if groups:
                scores = scores - stepper.own(_penalty(groups, log_probs.shape[-1], step, config.diversity_penalty))
            parents, token = group.advance(log_probs, scores, step, num_beams)
            if stop_at is None:
                group.history.append(group.beams.tokens)
            elif group.is_done(stop_at):
                break
        groups.append(group)
    output = SearchOutput.join(_to_outputs(groups, count)).map(lambda rows: rows[:, :count])
    check_scores(output.scores)
    return output


@dataclass(frozen=True, eq=False)
class _Hypotheses:
    """K hypotheses for each image, with capacity for the longest.

    tokens, log_probs: `(B, K, T)`. parent_beams: the beam that each token was chosen in, `(B, K, T)`. sum_log_probs:
    the sum by which hypotheses rank before normalization by length, with the penalties of diverse beam search,
    `(B, K)`. lengths: numbers of tokens, eos included, `(B, K)`.
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

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> _Hypotheses:
        return _Hypotheses(*map(function, vars(self).values()))

    def pick(self, beams: np.ndarray) -> _Hypotheses:
        return self.map(lambda rows: pick_rows(rows, beams))

    def concat(self, other: _Hypotheses) -> _Hypotheses:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Hypotheses(*(np.concatenate(pair, axis=1) for pair in pairs))

    def scores(self, config: GenerationConfig) -> np.ndarray:
        return _normalize(self.sum_log_probs, self.lengths, config)


@dataclass(frozen=True, eq=False)
class _Continuations:
    """The W best continuations of the hypotheses of each image, `(B, W)`, best first.

    parents: the hypothesis that each one continues. tokens, log_probs: the token added, and its log-probability.
    sum_log_probs, lengths: the sum and the length of the hypothesis with it; the sum is -inf where there are fewer than
    W.
    """

    parents: np.ndarray
    tokens: np.ndarray
    log_probs: np.ndarray
    sum_log_probs: np.ndarray
    lengths: np.ndarray


_RELEASED_SCORE = np.float32(-1000)
"""Sum of log-probabilities from which a released slot goes on: so low that unfinished hypotheses take the slot."""


class _BeamGroup(Generic[A]):
    """The beams of one group, best first, and, where finished beams are released, the finished hypotheses."""

    def __init__(self, stepper: Stepper[A]) -> None:
        """Start with one empty hypothesis per image: all beams are equal before the first token."""
        self.stepper, self.config, num_images = stepper, stepper.config, stepper.shape[0]
        self.beams = _Hypotheses.empty(num_images, 1, self.config)
        self.finished_hypotheses = _Hypotheses.empty(num_images, 0, self.config)
        self.is_finished = np.zeros((num_images, 1), bool)
        self.released = self.is_finished
        """Slots whose hypothesis was released; what follows in them is no hypothesis of its own."""
        self.history: list[np.ndarray] = []
        """Tokens of all hypotheses after each step, kept for the groups that follow."""
        self.weights: list[A] = []
        """Cross-attention weights of each step `(B, K, H, N)`."""

    def advance(self, log_probs: A, scores: A, step: int, num_beams: int) -> tuple[np.ndarray, np.ndarray]:
        """Replace the hypotheses by their `num_beams` best continuations; return their parents and their tokens.

        log_probs, scores: log-probabilities and scores of the next token; ranks follow from the scores, which may
        include penalties.
        """
        best = self._rank(log_probs, scores, num_beams)
        self._append(best, step)
        ends = best.tokens == self.config.eos_token_id
        if self.config.finished_beams == "keep":
            self.is_finished = take(self.is_finished, best.parents) | ends
        else:
            self.released = take(self.released, best.parents)
            self._add_finished(ends & ~self.released, num_beams)
            self.released = self.released | ends
            self.is_finished = ends
            sums = np.where(ends, _RELEASED_SCORE, self.beams.sum_log_probs)
            self.beams = replace(self.beams, sum_log_probs=sums)
        return best.parents, best.tokens

    def _rank(
        self, log_probs: A, scores: A, count: int, allowed: np.ndarray | None = None, *, may_stay: bool = True
    ) -> _Continuations:
        """Return the `count` best continuations.

        allowed: the tokens `(K, V)` after each hypothesis, by default all. may_stay: whether finished hypotheses, which
        have no other continuation, may stay as they are.
        """
        # continuations of one hypothesis rank as their scores do, so its `count` best are enough
        tokens, values, chosen = self.stepper.top(log_probs, scores, count, allowed)
        lengths = self.beams.lengths + 1
        if self.config.finished_beams == "keep":
            is_finished = self.is_finished[..., np.newaxis]
            stay = np.full(values.shape[-1], -np.inf, np.float32)
            stay[0] = 0 if may_stay else -np.inf
            values, chosen = np.where(is_finished, stay, values), np.where(is_finished, stay, chosen)
            tokens = np.where(is_finished, self.config.eos_token_id, tokens)
            lengths = self.beams.lengths + ~self.is_finished
        sums = self.beams.sum_log_probs[..., np.newaxis] + values
        best = largest(_flat(_normalize(sums, lengths[..., np.newaxis], self.config)), count)
        parents = best // values.shape[-1]
        tokens, chosen, sums = (take(_flat(part), best) for part in (tokens, chosen, sums))
        return _Continuations(parents, tokens, chosen, sums, take(lengths, parents))

    def _append(self, best: _Continuations, step: int) -> None:
        """Make hypotheses of the parents and their next tokens."""
        beams = self.beams.pick(best.parents)
        log_probs = beams.log_probs.astype(best.log_probs.dtype, copy=False)
        beams.tokens[..., step], log_probs[..., step] = best.tokens, best.log_probs
        beams.parent_beams[..., step] = best.parents
        self.beams = _Hypotheses(beams.tokens, log_probs, beams.parent_beams, best.sum_log_probs, best.lengths)

    def _add_finished(self, ended: np.ndarray, num_beams: int) -> None:
        """Keep the best `num_beams` of the finished hypotheses and of the beams that `ended` `(B, K)` marks."""
        sums = np.where(ended, self.beams.sum_log_probs, np.float32(-np.inf))
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


_MAX_SETS = 6
"""Sets of tokens, of which each doubles the number of beams."""


class _ConstrainedGroup(_BeamGroup[A]):
    """Beams of which each sequence has, of each set of tokens, at least one (Anderson et al., EMNLP 2017).

    The sets that a hypothesis has satisfied are the state of a finite automaton. Every state has a beam of its own, so
    that hypotheses compete with those of the same state only, and with beams that are wide enough the search is exact.
    The beams of the last state, with every set satisfied, come first; finished beams are kept.
    """

    def __init__(self, stepper: Stepper[A]) -> None:
        super().__init__(stepper)
        self.config = stepper.config.replace(finished_beams="keep")
        sets = self.config.required_tokens
        if len(sets) > _MAX_SETS:
            raise ConfigError(f"at most {_MAX_SETS} sets of words can be required, not {len(sets)}; name fewer")
        self._last = 2 ** len(sets) - 1
        self._states = np.zeros(1, np.int64)
        """The state of each beam, bit i for set i; the same for all images."""

    def advance(self, log_probs: A, scores: A, step: int, num_beams: int) -> tuple[np.ndarray, np.ndarray]:
        """Replace the hypotheses by the `num_beams` best continuations in each state; see `_BeamGroup.advance`."""
        bits = np.zeros(log_probs.shape[-1], np.int64)
        for number, tokens in enumerate(self.config.required_tokens):
            bits[list(tokens)] |= 1 << number
        following = self._states[:, np.newaxis] | bits  # (K, V)
        following[self._states != self._last, self.config.eos_token_id] = -1  # no caption ends before
        order = range(self._last, -1, -1)
        ranked = [
            self._rank(log_probs, scores, num_beams, following == state, may_stay=state == self._last)
            for state in order
        ]
        columns = zip(*(vars(_pad(part, num_beams)).values() for part in ranked), strict=True)
        best = _Continuations(*(np.concatenate(parts, axis=1) for parts in columns))
        self._append(best, step)
        self.is_finished = take(self.is_finished, best.parents) | (best.tokens == self.config.eos_token_id)
        self._states = np.repeat(order, num_beams)
        return best.parents, best.tokens

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


def _pad(best: _Continuations, count: int) -> _Continuations:
    """Return `count` continuations, of which the added ones have a score of -inf."""
    missing = ((0, 0), (0, count - best.tokens.shape[1]))
    padded = _Continuations(*(np.pad(values, missing) for values in vars(best).values()))
    padded.sum_log_probs[:, best.tokens.shape[1] :] = -np.inf
    return padded


def _penalty(earlier: Sequence[_BeamGroup], V: int, step: int, diversity_penalty: float) -> np.ndarray:
    """Return the penalty `(B, 1, V)` of each token, proportional to how often earlier groups chose it at this step.

    As in the release, each group is one step behind the one before it, so the hypotheses counted are those after
    further steps: one step for the group before, two for the one before that, and so on.
    """
    counts = np.zeros((earlier[0].stepper.shape[0], V), np.float32)
    for ahead, group in enumerate(reversed(earlier), start=1):
        tokens = group.history[min(step + ahead, len(group.history) - 1)][..., step]
        np.add.at(counts, (np.arange(len(tokens))[:, np.newaxis], tokens), 1)
    return np.float32(diversity_penalty) * counts[:, np.newaxis]


def _to_outputs(groups: Sequence[_BeamGroup], count: int) -> list[SearchOutput]:
    """Return the first `count` sequences of each group, cut to the longest of all, with their attention weights."""
    finalized = [group.finalize() for group in groups]
    T = max((int(hypotheses.lengths.max()) for hypotheses in finalized if hypotheses.lengths.size), default=0)
    first = (hypotheses.map(lambda rows: rows[:, :count]) for hypotheses in finalized)
    return [_to_output(hypotheses, group, T) for hypotheses, group in zip(first, groups, strict=True)]


def _to_output(hypotheses: _Hypotheses, group: _BeamGroup, T: int) -> SearchOutput:
    config, weights = group.config, [group.stepper.to_numpy(weights) for weights in group.weights]
    scores = hypotheses.scores(config)
    is_empty = np.isneginf(scores)[..., np.newaxis]  # no hypothesis was left for this row
    mask = (np.arange(T) < hypotheses.lengths[..., np.newaxis]) & ~is_empty
    attention = None
    if weights:
        parents = hypotheses.parent_beams
        steps = [pick_rows(weights[min(step, len(weights) - 1)], parents[..., step]) for step in range(T)]
        attention = np.stack(steps, axis=2) * mask[..., np.newaxis, np.newaxis]
    tokens = np.where(mask, hypotheses.tokens[..., :T], config.padding_id)
    tokens[..., :1] = np.where(is_empty, config.eos_token_id, tokens[..., :1])
    return SearchOutput(tokens, np.where(mask, hypotheses.log_probs[..., :T], 0), scores, attention)


def _normalize(sums: np.ndarray, lengths: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Return the sums divided by the length penalty of `config`; the shapes broadcast."""
    if config.length_penalty == 0:
        return sums
    lengths = lengths.astype(sums.dtype)
    base = lengths if config.length_normalization == "power" else (5 + lengths) / 6
    with np.errstate(over="ignore"):
        penalty = np.minimum(base**config.length_penalty, np.finfo(sums.dtype).max)  # -inf over inf is no number
    return sums / penalty


_FEW = 64
"""Values that are found one after the other in less time than it takes to sort all."""


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` largest values of the last axis, largest first; the first of equal ones leads.

    Where there are fewer values, all indices.
    """
    count = min(count, values.shape[-1])
    if count <= _FEW:
        maxima, indices = find_largest(values, count)
        if not np.isneginf(maxima).any():
            return indices
    return np.argsort(-values, axis=-1, kind="stable")[..., :count]


def find_largest(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `count` largest values of the last axis and their indices, largest first.

    Where fewer are above -inf, the others are -inf, with any index.
    """
    left, maxima, indices = values.copy(), [], []
    for _ in range(count):
        best = left.argmax(axis=-1)[..., np.newaxis]
        indices.append(best)
        maxima.append(take(left, best))
        np.put_along_axis(left, best, -np.inf, axis=-1)
    return np.concatenate(maxima, axis=-1), np.concatenate(indices, axis=-1)


def _repeated_ngrams(tokens: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return image, row and token of each time that a token has followed the last `size - 1` tokens of its row."""
    if tokens.shape[-1] < size:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    ngrams = np.lib.stride_tricks.sliding_window_view(tokens, size, axis=-1)
    last = tokens[..., np.newaxis, tokens.shape[-1] - size + 1 :]
    image, row, position = np.nonzero((ngrams[..., :-1] == last).all(axis=-1))
    return image, row, ngrams[image, row, position, -1]


def check_scores(scores: np.ndarray) -> None:
    """Raise DataError where a score of an image is NaN, or none is finite."""
    good = np.isfinite(scores).any(axis=1) & ~np.isnan(scores).any(axis=1)
    if not good.all():
        raise DataError(
            f"the scores of image {int(np.argmin(good))} of the batch are NaN or infinite; look for extreme values in "
            "its features, check a run with legenda inspect --verify, or compute in float32"
        )


def pick_rows(rows: np.ndarray, beams: np.ndarray) -> np.ndarray:
    """Return the rows `beams` `(B, W)` of each image of an array `(B, K, ...)`."""
    return rows[np.arange(len(beams))[:, np.newaxis], beams]


def take(values: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the values at indices of the last axis."""
    return np.take_along_axis(values, indices, axis=-1)


def _flat(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), math.prod(values.shape[1:]))
