"""Predicted words as regions: what the extractor `photo` and training on captions alone share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np

from legenda.errors import CheckpointError
from legenda.extractors.photo import layout
from legenda.io import read_text
from legenda.models.checkpoint import load_tensors

_HINT = "install legenda again, or write the folder again"

NUM_WORDS = 16
"""Single words among an image's predicted ones."""
NUM_PHRASES = 6
"""Predicted pairs of words, such as "black dog"."""


@dataclass(frozen=True, eq=False)
class WordTable:
    """The words and pairs of words that are predicted, most frequent first, words before pairs.

    vectors: `(W, 2 * layout.WORD)`, the vectors of the first and the last word of each. prior: `(W,)`, the mean share
    of an image's captions that hold it. projection: `(W, layout.DENSE)`, principal directions of what `standardize`
    returns.
    """

    names: tuple[str, ...]
    num_words: int
    vectors: np.ndarray
    prior: np.ndarray
    projection: np.ndarray

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the table of a folder; raise LegendaError for a file that is missing or damaged."""
        names = tuple(read_text(folder / "words.txt", _HINT).splitlines())
        tensors = load_tensors(folder / "words.safetensors", _HINT)
        words, prior, projection = (tensors[name].numpy() for name in ("vectors", "prior", "projection"))
        num_words = sum(" " not in name for name in names)
        if (len(words), len(prior), len(projection)) != (num_words, len(names), len(names)):
            raise CheckpointError(f"{folder / 'words.txt'} does not fit words.safetensors; install legenda again")
        index = {name: number for number, name in enumerate(names)}
        ends = np.array([[index[name.split()[0]], index[name.split()[-1]]] for name in names])
        return cls(names, num_words, words[ends].reshape(len(names), -1), prior, projection)

    def standardize(self, shares: np.ndarray) -> np.ndarray:
        """Return predictions `(B, W)` on the scale on which they are compared and projected."""
        return np.sqrt(shares.clip(0)) - np.sqrt(self.prior)

    def fill(self, features: np.ndarray, shares: np.ndarray) -> None:
        """Fill predicted shares `(B, W)` into regions `(B, N, layout.WIDTH)`.

        All predictions go into region 0, the words and then the pairs with the largest share / prior ** 0.25, largest
        first, into the last NUM_WORDS + NUM_PHRASES regions.
        """
        shares = shares.clip(1e-4, 1)
        features[:, 0, layout.START_DENSE : layout.START_WORD] = self.standardize(shares) @ self.projection
        scores = shares / self.prior**0.25
        words = _largest(scores[:, : self.num_words], NUM_WORDS)
        chosen = np.concatenate([words, self.num_words + _largest(scores[:, self.num_words :], NUM_PHRASES)], axis=1)
        of_words = features[:, -(NUM_WORDS + NUM_PHRASES) :]
        of_words[..., layout.START_WORD : layout.START_SCALARS] = self.vectors[chosen]
        share = np.take_along_axis(shares, chosen, axis=1)
        of_words[..., layout.SHARE] = 3 * share
        of_words[..., layout.LOG_SHARE] = np.log(share) / 4
        of_words[..., layout.LIFT] = np.log(share / self.prior[chosen]) / 4
        of_words[:, :NUM_WORDS, layout.IS_WORD] = 1
        of_words[:, NUM_WORDS:, layout.IS_PHRASE] = 1


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the largest values of each row, largest first; the first of equal ones precedes."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


def caption_shares(captions: Sequence[Sequence[str]], index: dict[str, int]) -> np.ndarray:
    """Return the share of tokenized captions that hold each word or pair of words, `(len(index),)`."""
    shares = np.zeros(len(index), np.float32)
    for tokens in captions:
        present = {*tokens, *(" ".join(pair) for pair in pairwise(tokens))}
        for name in present:
            if name in index:
                shares[index[name]] += 1 / len(captions)
    return shares
