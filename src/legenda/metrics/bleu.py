"""BLEU-1 to BLEU-4 of a corpus and of every image.

Sources: Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", 2002; pycocoevalcap 1.2 for
the choice of the reference length and for the smoothing, to which every value is equal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from legenda.metrics.metric import CaptionSet, Metric
from legenda.text.ngrams import MAX_ORDER, Comparison, Tokens

# The reference program's smoothing of counts and totals.
_TINY = 1e-15
_SMALL = 1e-9


def bleu_statistics(words: Comparison) -> NDArray[np.int64]:
    """Return the statistics of each of K candidates that BLEU sums over a corpus, ten numbers, `(K, 10)`.

    They are the matching n-grams of each length, clipped at the largest count in a reference; all n-grams of each
    length; the caption's length; and the closest length of a reference, the shorter of two equally close.
    """
    table, K = words.ngrams, len(words.begins)
    _, entries, others = words.shared
    most = np.zeros_like(table.counts)
    np.maximum.at(most, entries, table.counts[others])
    matches = np.minimum(most, table.counts)[: np.searchsorted(table.captions, K)]
    rows, orders = table.captions[: len(matches)], table.orders[table.ngrams[: len(matches)]]
    correct = np.zeros((K, MAX_ORDER), np.int64)
    np.add.at(correct, (rows, orders), matches)
    lengths = table.lengths[:K]
    possible = (lengths[:, np.newaxis] - np.arange(MAX_ORDER)).clip(min=0)
    others, whole = table.lengths[words.references], int(table.lengths.max()) + 1
    gaps = np.abs(others - lengths[words.candidates])
    closest = np.minimum.reduceat(gaps * whole + others, words.begins) % whole
    return np.column_stack([correct, possible, lengths, closest])


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
    statistics = bleu_statistics(Comparison(candidates, references))
    return tuple(bleu_scores(statistics.sum(0)).tolist()), list(map(tuple, bleu_scores(statistics).tolist()))


def _measure(captions: CaptionSet) -> NDArray[np.int64]:
    return bleu_statistics(captions.words)


def _metric(order: int, description: str) -> Metric:
    return Metric(_measure, description, total=lambda sums: bleu_scores(sums)[..., order - 1])


BLEU_1 = _metric(1, "share of words that a reference has, with a penalty for short captions")
BLEU_2, BLEU_3, BLEU_4 = (_metric(n, f"the same as BLEU-1 for n-grams of one to {n} words") for n in (2, 3, 4))
