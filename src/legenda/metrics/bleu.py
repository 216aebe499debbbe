"""BLEU-1 to BLEU-4 of a corpus and of every image.

Sources: Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", 2002; pycocoevalcap 1.2 for
the choice of the reference length and for the smoothing, to which every value is equal.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from legenda.metrics.ngrams import LONGEST, count_ngrams

# Added to counts of matches and to totals, so that nothing is divided by zero and no match is nearly, not quite, zero.
_TINY = 1e-15
_SMALL = 1e-9


@dataclass(frozen=True)
class _Matches:
    """The numbers BLEU adds up: `correct[n - 1]` of `possible[n - 1]` n-grams, and two lengths in tokens."""

    correct: tuple[int, ...]
    possible: tuple[int, ...]
    length: int
    reference_length: int

    def scores(self) -> tuple[float, ...]:
        ratio = (self.length + _TINY) / (self.reference_length + _SMALL)
        brevity = math.exp(1 - 1 / ratio) if ratio < 1 else 1.0
        product, scores = 1.0, []
        for n, (correct, possible) in enumerate(zip(self.correct, self.possible, strict=True), start=1):
            product *= (correct + _TINY) / (possible + _SMALL)
            scores.append(product ** (1 / n) * brevity)
        return tuple(scores)


def bleu(
    candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
) -> tuple[tuple[float, ...], list[tuple[float, ...]]]:
    """BLEU-1..4 of the corpus, and of each image alone, in 0..1.

    Takes one tokenized candidate and one or more tokenized references an image. The corpus score adds up matches and
    lengths over all images; it is not the mean of the images' scores. The reference closest in length counts for the
    brevity penalty, the shorter of two equally close.
    """
    images = [_matches(*pair) for pair in zip(candidates, references, strict=True)]
    corpus = _Matches(
        correct=tuple(map(sum, zip(*(image.correct for image in images), strict=True))),
        possible=tuple(map(sum, zip(*(image.possible for image in images), strict=True))),
        length=sum(image.length for image in images),
        reference_length=sum(image.reference_length for image in images),
    )
    return corpus.scores(), [image.scores() for image in images]


def _matches(candidate: Sequence[str], references: Sequence[Sequence[str]]) -> _Matches:
    most: Counter[tuple[str, ...]] = Counter()
    for reference in references:
        most |= count_ngrams(reference)
    correct = [0] * LONGEST
    for ngram, count in count_ngrams(candidate).items():
        correct[len(ngram) - 1] += min(count, most[ngram])
    length = len(candidate)
    return _Matches(
        correct=tuple(correct),
        possible=tuple(max(0, length - n) for n in range(LONGEST)),
        length=length,
        reference_length=min(map(len, references), key=lambda other: (abs(other - length), other)),
    )
