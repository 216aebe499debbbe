"""Beam search and sampling in NumPy, token for token the searches of `legenda.decoding`.

An exported decoder is a function of tokens and a state: arrays by name, of which those named `state.*` have a row for
each hypothesis, `(B, K, ...)`, and all others belong to the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol
from zlib import crc32

import numpy as np

from legenda.runtime.generation import (
    SearchOutput,
    Stepper,
    find_largest,
    generate_rows,
    largest,
    pick_rows,
    search_beams,
    take,
)
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

    state: with one empty row per image. names: the names of the images, by default their positions; the samples of
    an image follow from its name and the seed, not from its batch.
    Sequences of diverse beam search are sorted over all groups. Raise ConfigError where no sequence has all required
    words, and DataError where scores are NaN or infinite.
    """

    def start(num_rows: int, *, beam: bool) -> Stepper:
        return _ArrayStepper(decode, state, (num_images, num_rows), config, beam=beam, need_attention=need_attention)

    if config.do_sample:
        seeds = [f"{config.seed} {name}" for name in names or range(num_images)]
        streams = [np.random.RandomState(crc32(seed.encode(errors="surrogatepass"))) for seed in seeds]

        def choose(log_probs: np.ndarray) -> np.ndarray:
            scaled = log_probs / np.float32(config.temperature)
            return sample_tokens(top_k_top_p_filter(scaled, config.top_k, config.top_p), streams)

        return generate_rows(start(num_captions, beam=False), choose)
    return search_beams(partial(start, 1, beam=True), config, num_captions)


class _ArrayStepper(Stepper[np.ndarray]):
    """Step a decoder of NumPy arrays."""

    def __init__(
        self,
        decode: Decode,
        state: State,
        shape: tuple[int, int],
        config: GenerationConfig,
        *,
        beam: bool,
        need_attention: bool,
    ) -> None:
        super().__init__(shape, config, beam=beam)
        self._decode, self._need_attention = decode, need_attention
        self.state = state if shape[1] == 1 else _reorder(state, np.zeros(shape, np.int64))

    def decode(self, tokens: np.ndarray, parents: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        state = self.state if parents is None else _reorder(self.state, parents)
        logits, attention, self.state = self._decode(tokens, state, need_attention=self._need_attention)
        return log_softmax(logits), attention

    def own(self, values: np.ndarray) -> np.ndarray:
        return values

    def to_numpy(self, values: np.ndarray) -> np.ndarray:
        return values

    def normalize(self, scores: np.ndarray) -> np.ndarray:
        return log_softmax(scores)

    def pick(self, log_probs: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        return take(log_probs, tokens[..., np.newaxis])[..., 0]

    def top(
        self, log_probs: np.ndarray, scores: np.ndarray, count: int, allowed: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if allowed is not None:
            scores, tokens = find_largest(np.where(allowed, scores, -np.inf), min(count, scores.shape[-1]))
        else:
            tokens = largest(scores, count)
            scores = take(scores, tokens)
        return tokens, scores, take(log_probs, tokens)


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Return the logarithm of the softmax over the last axis, a new array."""
    shifted = x - x.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


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
        np.put_along_axis(filtered, kept, take(log_probs, kept), axis=-1)
        log_probs = filtered
    if top_p is not None and top_p < 1:
        tokens = np.argsort(-log_probs, axis=-1, kind="stable")
        probabilities = np.exp(log_softmax(take(log_probs, tokens)))
        removed = probabilities.cumsum(axis=-1) - probabilities >= np.float32(top_p)
        removed[..., 0] = False
        is_removed = np.zeros_like(removed)
        np.put_along_axis(is_removed, tokens, removed, axis=-1)
        log_probs = np.where(is_removed, np.float32(-np.inf), log_probs)
    return log_probs


def _reorder(state: State, beams: np.ndarray) -> State:
    """Return the state of the rows `beams` `(B, W)` of each image."""
    return {name: pick_rows(value, beams) if name.startswith(ROWS) else value for name, value in state.items()}
