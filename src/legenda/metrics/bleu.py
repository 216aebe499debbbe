"""BLEU-1 to BLEU-4 of a corpus and of every image.

Sources: Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", 2002; pycocoevalcap 1.2 for
the choice of the reference length and for the smoothing, to which every value is equal.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from legenda.metrics.ngrams import MAX_ORDER, Corpus, Floats, Integers, NgramCounts

# The reference program's smoothing of counts and totals.
_TINY = 1e-15
_SMALL = 1e-9


@dataclass(frozen=True)
class BleuStatistics:
    """The sufficient statistics of BLEU for each candidate.

    correct, possible: matching and all n-grams, shape (MAX_ORDER, candidates). lengths, closest: the candidate's length
    in tokens and the closest length of a reference, the shorter of two equally close.
    """

    correct: Integers
    possible: Integers
    lengths: Integers
    closest: Integers

    @classmethod
    def from_counts(cls, counts: NgramCounts) -> Self:
        """Return the statistics of candidates; matches of an n-gram are clipped at its largest count in a reference."""
        lengths, pairs = counts.candidate_lengths, counts.pairs
        correct = []
        for bag, found in zip(counts.candidates, counts.overlaps, strict=True):
            firsts = np.flatnonzero(np.diff(found.entries, prepend=-1))
            most = np.maximum.reduceat(found.counts, firsts) if len(firsts) else found.counts
            correct.append(np.bincount(bag.caption_indices(), np.minimum(bag.counts, most), minlength=len(lengths)))
        lengths_of_pairs = counts.reference_lengths[pairs.reference_indices()]
        gaps = np.abs(lengths_of_pairs - lengths[pairs.candidate_indices()])
        base = int(counts.reference_lengths.max()) + 1
        closest = np.minimum.reduceat(gaps * base + lengths_of_pairs, pairs.starts[:-1]) % base
        possible = np.maximum(0, lengths - np.arange(MAX_ORDER)[:, np.newaxis])
        return cls(np.array(correct, np.int64), possible, lengths, closest)

    def total(self) -> Self:
        """Return the sums over all candidates, as those of one candidate."""
        return type(self)(
            self.correct.sum(axis=1, keepdims=True),
            self.possible.sum(axis=1, keepdims=True),
            self.lengths.sum(keepdims=True),
            self.closest.sum(keepdims=True),
        )

    def scores(self) -> Floats:
        """Return BLEU-1 to BLEU-4 of each candidate, shape (candidates, MAX_ORDER)."""
        ratio = (self.lengths + _TINY) / (self.closest + _SMALL)
        brevity = np.exp(np.minimum(0.0, 1 - 1 / ratio))
        products = np.cumprod((self.correct + _TINY) / (self.possible + _SMALL), axis=0)
        return (products ** (1 / np.arange(1, MAX_ORDER + 1)[:, np.newaxis]) * brevity).T

    def per_candidate(self) -> list[tuple[int, ...]]:
        """Return the matching and the possible n-grams of lengths 1 to 4 and the two lengths of each candidate."""
        columns = (*self.correct, *self.possible, self.lengths, self.closest)
        return list(zip(*(column.tolist() for column in columns), strict=True))


def bleu(
    candidates: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Sequence[Hashable]]]
) -> tuple[tuple[float, ...], list[tuple[float, ...]]]:
    """Return BLEU-1 to BLEU-4 of the corpus and of each image, in 0..1.

    candidates: one tokenized caption an image. references: one or more tokenized captions an image. Matches and lengths
    are summed over all images for the corpus score, which is not the mean of the images' scores. The brevity penalty
    uses the reference closest in length, the shorter of two equally close.
    """
    statistics = BleuStatistics.from_counts(Corpus.from_tokens(candidates, references))
    return tuple(statistics.total().scores()[0].tolist()), list(map(tuple, statistics.scores().tolist()))
