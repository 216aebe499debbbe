"""BLEU-1 to BLEU-4 of a corpus and of every image.

Sources: Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", 2002; pycocoevalcap 1.2 for
the choice of the reference length and for the smoothing, to which every value is equal.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from legenda.metrics.ngrams import LONGEST, Bag, Corpus, Floats, Integers, Overlap, Pairs

# Added to counts of matches and to totals, so that nothing is divided by zero and no match is nearly, not quite, zero.
_TINY = 1e-15
_SMALL = 1e-9


@dataclass(frozen=True)
class BleuCounts:
    """What BLEU adds up, for each candidate.

    correct, possible: matching and all n-grams, shape (LONGEST, candidates). lengths, closest: the candidate's length
    in tokens and that of the reference closest to it, the shorter of two equally close.
    """

    correct: Integers
    possible: Integers
    lengths: Integers
    closest: Integers

    @classmethod
    def of(cls, corpus: Corpus) -> Self:
        """The counts of a corpus of captions."""
        return cls.count(
            corpus.candidates, corpus.overlaps, corpus.pairs, corpus.candidate_lengths, corpus.reference_lengths
        )

    @classmethod
    def count(
        cls,
        candidates: Sequence[Bag],
        overlaps: Sequence[Overlap],
        pairs: Pairs,
        lengths: Integers,
        reference_lengths: Integers,
    ) -> Self:
        """The counts of candidates; an n-gram matches as often as the reference that has most of it allows."""
        correct = []
        for bag, found in zip(candidates, overlaps, strict=True):
            firsts = np.flatnonzero(np.diff(found.entries, prepend=-1))
            most = np.maximum.reduceat(found.counts, firsts) if len(firsts) else found.counts
            correct.append(np.bincount(bag.owners(), np.minimum(bag.counts, most), minlength=len(lengths)))
        theirs = reference_lengths[pairs.references()]
        gaps = np.abs(theirs - lengths[pairs.candidates()])
        most = int(reference_lengths.max()) + 1
        closest = np.minimum.reduceat(gaps * most + theirs, pairs.starts[:-1]) % most
        possible = np.maximum(0, lengths - np.arange(LONGEST)[:, np.newaxis])
        return cls(np.array(correct, np.int64), possible, lengths, closest)

    def total(self) -> Self:
        """The sums over all candidates, as one."""
        return type(self)(
            self.correct.sum(axis=1, keepdims=True),
            self.possible.sum(axis=1, keepdims=True),
            self.lengths.sum(keepdims=True),
            self.closest.sum(keepdims=True),
        )

    def scores(self) -> Floats:
        """BLEU-1..4 of every candidate, shape (candidates, LONGEST)."""
        ratio = (self.lengths + _TINY) / (self.closest + _SMALL)
        brevity = np.exp(np.minimum(0.0, 1 - 1 / ratio))
        products = np.cumprod((self.correct + _TINY) / (self.possible + _SMALL), axis=0)
        return (products ** (1 / np.arange(1, LONGEST + 1)[:, np.newaxis]) * brevity).T

    def rows(self) -> list[tuple[int, ...]]:
        """For each candidate the matching n-grams by length, the possible ones, and the two lengths."""
        return list(
            zip(
                *self.correct.tolist(),
                *self.possible.tolist(),
                self.lengths.tolist(),
                self.closest.tolist(),
                strict=True,
            )
        )


def bleu(
    candidates: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Sequence[Hashable]]]
) -> tuple[tuple[float, ...], list[tuple[float, ...]]]:
    """BLEU-1..4 of the corpus, and of each image alone, in 0..1.

    Takes one tokenized candidate and one or more tokenized references an image. The corpus score adds up matches and
    lengths over all images; it is not the mean of the images' scores. The reference closest in length counts for the
    brevity penalty, the shorter of two equally close.
    """
    counts = BleuCounts.of(Corpus.from_tokens(candidates, references))
    return tuple(counts.total().scores()[0].tolist()), list(map(tuple, counts.scores().tolist()))
