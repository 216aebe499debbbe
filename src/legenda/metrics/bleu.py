"""BLEU-1 to BLEU-4 of a corpus and of every image.

Sources: Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", 2002; pycocoevalcap 1.2 for
the choice of the reference length and for the smoothing, to which every value is equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from legenda.metrics.metric import CaptionSet, Metric
from legenda.text.ngrams import MAX_ORDER, Ngram, Tokens, ngrams

# The reference program's smoothing of counts and totals.
_TINY = 1e-15
_SMALL = 1e-9


def bleu_statistics(candidate: Tokens, references: Sequence[Tokens]) -> tuple[int, ...]:
    """Return the statistics of one caption that BLEU sums over a corpus, ten numbers.

    They are the matching n-grams of each length, clipped at the largest count in a reference; all n-grams of each
    length; the caption's length; and the closest length of a reference, the shorter of two equally close.
    """
    counts = Counter(ngrams(candidate))
    most: dict[Ngram, int] = dict.fromkeys(counts, 0)
    for reference in references:
        known = Counter(ngrams(reference))
        for ngram in most.keys() & known.keys():  # a union of all counts takes three times as long
            most[ngram] = max(most[ngram], known[ngram])
    correct = [0] * MAX_ORDER
    for ngram, count in counts.items():
        correct[len(ngram) - 1] += min(count, most[ngram])
    length = len(candidate)
    possible = [max(0, length - n) for n in range(MAX_ORDER)]
    closest = min(map(len, references), key=lambda other: (abs(other - length), other))
    return (*correct, *possible, length, closest)


def bleu_scores(statistics: ArrayLike) -> NDArray[np.float64]:
    """Return BLEU-1 to BLEU-4, shape (..., 4), of statistics or of their sums over a corpus, shape (..., 10)."""
    correct, possible, lengths = np.split(np.asarray(statistics, np.float64), [MAX_ORDER, 2 * MAX_ORDER], axis=-1)
    ratio = (lengths[..., :1] + _TINY) / (lengths[..., 1:] + _SMALL)
    brevity = np.exp(np.minimum(0.0, 1 - 1 / ratio))
    products = np.cumprod((correct + _TINY) / (possible + _SMALL), axis=-1)
    return products ** (1 / np.arange(1, MAX_ORDER + 1)) * brevity


def bleu(
    candidates: Sequence[Tokens], references: Sequence[Sequence[Tokens]]
) -> tuple[tuple[float, ...], list[tuple[float, ...]]]:
    """Return BLEU-1 to BLEU-4 of the corpus and of each image, in 0..1.

    candidates: one tokenized caption an image. references: one or more tokenized captions an image. Matches and lengths
    are summed over all images for the corpus score, which is not the mean of the images' scores. The brevity penalty
    uses the reference closest in length, the shorter of two equally close.
    """
    statistics = np.array([bleu_statistics(*image) for image in zip(candidates, references, strict=True)])
    return tuple(bleu_scores(statistics.sum(0)).tolist()), list(map(tuple, bleu_scores(statistics).tolist()))


def _measure(captions: CaptionSet) -> list[tuple[int, ...]]:
    return [bleu_statistics(*image) for image in captions.words]


def _metric(order: int, description: str) -> Metric:
    return Metric(_measure, description, total=lambda sums: bleu_scores(sums)[..., order - 1])


BLEU_1 = _metric(1, "share of words that a reference has, with a penalty for short captions")
BLEU_2, BLEU_3, BLEU_4 = (_metric(n, f"the same as BLEU-1 for n-grams of one to {n} words") for n in (2, 3, 4))
