"""The statistics of an experiment: paired intervals, exact sign-flip tests, Holm's correction, verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.stats import beta, nct, t

from legenda.metrics import resampling

Verdict = Literal[
    "supported", "contradicted", "no relevant effect", "no relevant gain", "not faster", "no harm", "inconclusive"
]
LEVEL = 0.05
"""The level of every test; that of the signs is corrected for the number of primary comparisons."""


@dataclass(frozen=True)
class Effect:
    """The mean of paired differences, its 95 % and 90 % intervals, and the p value of the sign-flip test.

    images: the standard error of the mean that comes from the choice of test images, 0 where seeds draw them.
    """

    differences: tuple[float, ...]
    mean: float
    interval: tuple[float, float]
    inner: tuple[float, float]
    p: float
    images: float = 0.0


def paired_effect(differences: Sequence[float], images: float = 0.0) -> Effect:
    """Return the effect of at least two differences, whose intervals take in the standard error of the images."""
    values = np.asarray(differences, float)
    mean, error = float(values.mean()), float(np.hypot(values.std(ddof=1) / np.sqrt(len(values)), images))
    outer, inner = (float(t.ppf(q, len(values) - 1)) * error for q in (1 - LEVEL / 2, 1 - LEVEL))
    intervals = (mean - outer, mean + outer), (mean - inner, mean + inner)
    return Effect(tuple(values.tolist()), mean, *intervals, sign_flip_p(values), images)


def share_interval(count: int, total: int, level: float = LEVEL) -> tuple[float, float]:
    """Return Clopper and Pearson's interval of a share, here of the seeds that learn a task; by default of 95 %."""
    low = float(beta.ppf(level / 2, count, total - count + 1)) if count else 0.0
    return low, float(beta.ppf(1 - level / 2, count + 1, total - count)) if count < total else 1.0


def paired_share_effect(first: Sequence[float], second: Sequence[float]) -> Effect:
    """Return the effect of two shares of the same seeds, whose values are 0 or 1.

    The intervals are Newcombe's for paired shares (Statistics in Medicine 17, 1998, method 10), from Clopper and
    Pearson's intervals of both; a t interval of values of two kinds is too narrow where nearly all are alike.
    """
    values, others = np.asarray(first, float), np.asarray(second, float)
    effect, total = paired_effect(values - others), len(values)
    spread, shared = values.std() * others.std(), float(np.cov(values, others, ddof=0)[0, 1])
    shared = min(shared, max(shared - 0.5 / total, 0.0))  # the correction of this method for shares that rise together
    phi = shared / spread if spread else 0.0
    intervals = []
    for level in (LEVEL, 2 * LEVEL):
        (low, high), (other_low, other_high) = (
            share_interval(round(each.sum()), total, level) for each in (values, others)
        )
        below, above = values.mean() - low, high - values.mean()
        other_below, other_above = others.mean() - other_low, other_high - others.mean()
        down = np.sqrt(below**2 - 2 * phi * below * other_above + other_above**2)
        up = np.sqrt(above**2 - 2 * phi * above * other_below + other_below**2)
        intervals.append((float(effect.mean - down), float(effect.mean + up)))
    return replace(effect, interval=intervals[0], inner=intervals[1])


def power(seeds: int, sd: float, relevant: float, tests: int, images: float = 0.0) -> float:
    """Return the chance of a t test to find a difference of `relevant`, corrected for so many tests (Bonferroni).

    Holm's method finds it as often where it is the smallest p value, and more often elsewhere. images: the standard
    error that comes from the choice of test images.
    """
    error = float(np.hypot(sd / seeds**0.5, images))
    if error == 0:
        return 1.0
    limit, shift = t.ppf(1 - LEVEL / tests / 2, seeds - 1), relevant / error
    return float(nct.sf(limit, seeds - 1, shift) + nct.cdf(-limit, seeds - 1, shift))


def sign_flip_p(differences: Sequence[float] | np.ndarray) -> float:
    """Return the two-sided p value of the mean under all changes of the differences' signs.

    It takes no normality, only that a difference is as likely as its opposite where the conditions are alike.
    """
    values = np.asarray(differences, float)
    observed = abs(values.sum()) * (1 - 1e-12)
    first, second = _signed_sums(values[::2]), np.sort(_signed_sums(values[1::2]))  # 2**20 sums each for 40 differences
    above = len(second) - np.searchsorted(second, observed - first, side="left")
    below = np.searchsorted(second, -observed - first, side="right")
    return min(1.0, float((above + below).sum()) / (len(first) * len(second)))  # above 1 where the sum is 0


def _signed_sums(values: np.ndarray) -> np.ndarray:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def holm(p_values: Mapping[str, float], total: int | None = None) -> dict[str, float]:
    """Return Holm's adjusted p values; total: of all tests, where some have no p value yet (they count as 1)."""
    missing = (total or len(p_values)) - len(p_values)
    return dict(zip(p_values, resampling.holm([*p_values.values(), *[1.0] * missing]), strict=False))


def decide(
    effect: Effect, adjusted_p: float, predicted: int, relevant: float, *, control_passed: bool, steps: bool = False
) -> Verdict:
    """Return the verdict on a predicted sign.

    inconclusive where the control has not passed; no relevant effect: the whole 90 % interval is closer to 0 than
    `relevant`; supported, contradicted: the adjusted p value is below LEVEL, the 95 % interval is on one side of 0, and
    the mean has the predicted sign or the other one; no relevant gain (of steps: not faster), no harm: the 90 %
    interval excludes a difference of `relevant` with the predicted sign, or with the other one; else inconclusive.
    """
    low, high = sorted(bound * predicted for bound in effect.inner)
    if not control_passed:
        return "inconclusive"
    if -relevant < low and high < relevant:
        return "no relevant effect"
    if adjusted_p < LEVEL and (effect.interval[0] > 0 or effect.interval[1] < 0):
        return "supported" if effect.mean * predicted > 0 else "contradicted"
    if high < relevant:
        return "not faster" if steps else "no relevant gain"
    return "no harm" if -relevant < low else "inconclusive"
