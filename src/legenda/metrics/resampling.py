"""Confidence intervals of scores and significance of differences between two sets of captions, by resampling images.

Metrics that are means over images are resampled as scipy.stats does. BLEU and METEOR are not means: the statistics of
each image (matches, lengths) are resampled, so that no caption is scored twice. Document frequencies stay fixed.

Sources: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, for percentile intervals; Koehn, "Statistical
Significance Tests for Machine Translation Evaluation", 2004, for the paired bootstrap; Noreen, "Computer-Intensive
Methods for Testing Hypotheses", 1989, and Riezler and Maxwell, "On Some Pitfalls in Automatic Evaluation and
Significance Testing for MT", 2005, for approximate randomization, which gives p; Holm, "A Simple Sequentially
Rejective Multiple Test Procedure", 1979.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from legenda.errors import ConfigError, DataError
from legenda.metrics.evaluation import METRICS, Image, Scores
from legenda.metrics.metric import Measure

_AT_ONCE = 4_000_000
"""Weights of images in resamples that are in memory at a time."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval of a score."""

    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """A first set's score minus a second one's, its interval, and p.

    p: the probability of a difference at least as large when the two captions of each image are swapped at random.
    """

    difference: float
    low: float
    high: float
    p: float


def intervals(
    scores: Scores[Image], *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> dict[str, Interval | None]:
    """Return the bootstrap interval of each corpus score: percentiles over `resamples` draws of as many images.

    Images without a score of a metric are left out of its mean. A metric that was not computed has None. Raise
    ConfigError for settings out of range.
    """
    _check_settings(resamples, confidence)
    bounds: dict[str, Interval | None] = {}
    order = _positions(scores)
    for names in _summed_together(scores.counts):
        score, sums = _scorer(names), np.array(scores.counts[names[0]], float)[order]
        drawn = np.concatenate([score(weights @ sums) for weights in _bootstrap(len(sums), resamples, seed)])
        bounds |= {name: _interval(drawn[:, n], confidence) for n, name in enumerate(names)}
    for name, value in scores.corpus.items():
        if name not in bounds:
            values = _values(scores, name)[order]
            known = values[~np.isnan(values)]
            bounds[name] = None if value is None else _interval_of_mean(known, resamples, confidence, seed)
    return {name: bounds[name] for name in scores.corpus}


def compare(
    first: Scores[Image], second: Scores[Image], *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> dict[str, Difference | None]:
    """Compare two sets of captions of the same images: difference, interval and p of each metric.

    The interval is that of a paired bootstrap: both sets are scored on the same draws of images. p is the two-sided one
    of approximate randomization: in each of `resamples` rounds the two captions of every image are swapped or not, by a
    fair coin; p is the fraction of rounds, the observed one included, whose difference is at least as large (the exact
    fraction over all ways to swap a mean, where these are no more than `resamples`). It is not corrected for several
    metrics. Images without a score in either set are left out of a mean.

    Raise DataError where the two have different images or document frequencies, ConfigError for settings out of range.
    """
    _check_settings(resamples, confidence)
    if set(first.per_image) != set(second.per_image):
        raise DataError("the two sets of captions are of different images; score both on the same ones")
    if (first.documents, first.df) != (second.documents, second.df):
        raise DataError("the two sets were scored with different document frequencies; score both with the same ones")
    positions = [_positions(side) for side in (first, second)]
    comparisons: dict[str, Difference | None] = {}
    for names in _summed_together(name for name in first.counts if name in second.counts):
        sides = zip((first, second), positions, strict=True)
        a, b = (np.array(side.counts[names[0]], float)[at] for side, at in sides)
        comparisons |= _compare_sums(names, a, b, resamples, confidence, seed)
    for name, value in first.corpus.items():
        if value is None or second.corpus.get(name) is None:
            comparisons[name] = None
        elif name not in comparisons:
            differences = _values(first, name)[positions[0]] - _values(second, name)[positions[1]]
            comparisons[name] = _compare_means(differences[~np.isnan(differences)], resamples, confidence, seed)
    return {name: comparisons[name] for name in first.corpus}


def _summed_together(metrics: Iterable[str]) -> list[list[str]]:
    """Return the names of metrics that sum counts over images, those of the same counts together."""
    groups: dict[Measure, list[str]] = {}
    for name in metrics:
        groups.setdefault(METRICS.get(name).measure, []).append(name)
    return list(groups.values())


def _scorer(names: Sequence[str]) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function from sums of counts, `(..., parts)`, to the scores of metrics, `(..., metrics)`."""
    totals = [total for name in names if (total := METRICS.get(name).total) is not None]
    return lambda sums: np.stack([total(sums) for total in totals], axis=-1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p of several comparisons, in their order, corrected by Holm's procedure for their number."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p)
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1)
    return corrected.tolist()


def sign_flips(differences: np.ndarray, resamples: int, generator: np.random.Generator) -> tuple[np.ndarray, bool]:
    """Return the mean in each round that changes the signs of differences `(n,)` by fair coins, and whether p is exact.

    Where there are no more than `resamples` ways to change the signs, each of them is a round, and p of a permutation
    test is exact.
    """
    n = len(differences)
    if n < 63 and 2**n <= resamples:
        ways = np.arange(2**n)[:, np.newaxis] >> np.arange(n) & 1
        return np.where(ways, -differences, differences).mean(axis=1), True
    batch, means = min(_rows_at_once(n), resamples), []
    pairs = np.tile(np.arange(2), (batch, n, 1))
    for first in range(0, resamples, batch):
        coins = generator.permuted(pairs, axis=-1)[: resamples - first, :, 0]
        means.append(np.where(coins, -differences, differences).mean(axis=1))
    return np.concatenate(means), False


def share_as_large(values: np.ndarray, observed: float, *, exact: bool) -> float:
    """Return the share of rounds whose value is at least the observed one, which counts as a round where not exact.

    Sums in another order differ in the last digits, which make no difference here.
    """
    as_large = int((values >= observed - 100 * np.finfo(float).eps * abs(observed)).sum())
    return as_large / len(values) if exact else (as_large + 1) / (len(values) + 1)


def _interval_of_mean(values: np.ndarray, resamples: int, confidence: float, seed: int) -> Interval:
    generator, drawn, n = np.random.default_rng([seed, 0]), [], len(values)
    for rows in _chunks(n, resamples):
        drawn.append(values[generator.integers(0, n, (rows, n))].mean(axis=1))
    return _interval(np.concatenate(drawn), confidence)


def _compare_means(differences: np.ndarray, resamples: int, confidence: float, seed: int) -> Difference | None:
    if len(differences) == 0:
        return None
    mean = float(differences.mean())
    interval = _interval_of_mean(differences, resamples, confidence, seed)
    means, exact = sign_flips(differences, resamples, np.random.default_rng([seed, 1]))
    p = share_as_large(np.abs(means), abs(mean), exact=exact)
    return Difference(mean, interval.low, interval.high, p)


def _compare_sums(
    names: Sequence[str], a: np.ndarray, b: np.ndarray, resamples: int, confidence: float, seed: int
) -> dict[str, Difference]:
    """Compare the scores of sums over images; a, b: the counts of both sets, (images, parts)."""
    score = _scorer(names)
    drawn = np.concatenate([score(weights @ a) - score(weights @ b) for weights in _bootstrap(len(a), resamples, seed)])
    coins = np.random.default_rng([seed, 1])
    swapped = []
    for rows in _chunks(len(a), resamples):
        change = coins.integers(0, 2, (rows, len(a))).astype(float) @ (b - a)
        swapped.append(score(a.sum(0) + change) - score(b.sum(0) - change))
    observed = score(a.sum(0)) - score(b.sum(0))
    # Sums in another order differ in the last digits.
    as_large = (np.abs(np.concatenate(swapped)) >= np.abs(observed) - 1e-12).sum(0)
    result = {}
    for n, name in enumerate(names):
        interval, p = _interval(drawn[:, n], confidence), (1 + int(as_large[n])) / (1 + resamples)
        result[name] = Difference(float(observed[n]), interval.low, interval.high, p)
    return result


def students_interval(differences: np.ndarray, confidence: float = 0.95) -> Interval:
    """Return Student's interval of the mean of at least two differences `(n,)`."""
    n, mean = len(differences), float(differences.mean())
    half = students_quantile(confidence, n - 1) * float(differences.std(ddof=1)) / math.sqrt(n)
    return Interval(mean - half, mean + half)


def students_quantile(confidence: float, degrees: int) -> float:
    """Return the t that |T| exceeds with probability 1 - confidence, for Student's distribution of whole degrees.

    The probability of |T| <= t is a finite sum in the angle atan(t / sqrt(degrees)), which bisection inverts; see
    Abramowitz and Stegun, "Handbook of Mathematical Functions", 1964, 26.7.3 and 26.7.4.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _within(angle, degrees) < confidence else (low, angle)
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _within(angle: float, degrees: int) -> float:
    """Return the probability of |T| <= sqrt(degrees) * tan(angle)."""
    is_odd = degrees % 2
    term, total = math.cos(angle) if is_odd else 1.0, 0.0
    for k in range(1 + is_odd, degrees, 2):
        total += term
        term *= math.cos(angle) ** 2 * k / (k + 1)
    return (angle + math.sin(angle) * total) * 2 / math.pi if is_odd else math.sin(angle) * total


_FEWEST = 10
"""Draws without which percentiles mean nothing."""


def _check_settings(resamples: int, confidence: float) -> None:
    if resamples < _FEWEST:
        raise ConfigError(f"resamples must be at least {_FEWEST}, not {resamples}; fewer give no interval")
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence must lie between 0 and 1, not at {confidence}")


def _interval(drawn: np.ndarray, confidence: float) -> Interval:
    """Return the quantiles that bound the confidence, by linear interpolation; NaN are left out.

    np.nanquantile gives the same, and imports numpy.ma, which costs a short call 13 ms.
    """
    values = np.sort(drawn[~np.isnan(drawn)])
    if not len(values):
        return Interval(math.nan, math.nan)
    positions = np.array([(1 - confidence) / 2, (1 + confidence) / 2]) * (len(values) - 1)
    low, high = np.interp(positions, np.arange(len(values)), values)
    return Interval(float(low), float(high))


def _rows_at_once(images: int) -> int:
    return max(1, _AT_ONCE // images)


def _chunks(images: int, resamples: int) -> Iterator[int]:
    """Return how many resamples are in memory at a time."""
    rows = _rows_at_once(images)
    return (min(rows, resamples - first) for first in range(0, resamples, rows))


def _bootstrap(images: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Return how often each image is drawn, (rows, images): as many draws as images, all equally likely."""
    generator = np.random.default_rng([seed, 0])
    for rows in _chunks(images, resamples):
        yield generator.multinomial(images, np.full(images, 1 / images), size=rows).astype(float)


def _positions(scores: Scores[Image]) -> np.ndarray:
    """Return the positions of the images in the order of their sorted ids, so that draws do not depend on a file's."""
    names: list[Any] = list(scores.per_image)
    if len({*map(type, names)}) > 1:  # which have no order
        names = list(map(str, names))
    return np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)


def _values(scores: Scores[Image], name: str) -> np.ndarray:
    """Return the score of each image by a metric, NaN where it has none."""
    return np.array([values[name] for values in scores.per_image.values()], dtype=float)
