"""The verdict on a claim, which follows from the 95 % interval of the paired differences alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

Verdict = Literal["confirmed", "not confirmed", "refuted", "no verdict"]
MIN_SEEDS = 5


@dataclass(frozen=True)
class Interval:
    """The mean of some numbers, and the 95 % interval of the mean; None where one number has none."""

    mean: float
    low: float | None
    high: float | None


def paired_interval(differences: Sequence[float]) -> Interval:
    """Return mean and t interval of the differences of the same seeds; equal differences have an interval of no width.

    Raise ValueError for no differences.
    """
    if not differences:
        raise ValueError("there are no differences")
    mean = fmean(differences)
    if len(differences) == 1:
        return Interval(mean, None, None)
    if max(differences) == min(differences):
        return Interval(mean, mean, mean)
    from scipy.stats import ttest_1samp  # late: it takes a second

    found = ttest_1samp(differences, 0.0).confidence_interval(0.95)
    return Interval(mean, float(found.low), float(found.high))


def decide(interval: Interval, seeds: int, predicted: Literal["higher", "lower"]) -> Verdict:
    """Return the verdict on a predicted sign.

    confirmed: the whole interval is on the predicted side of 0; refuted: it is on the other side; not confirmed: 0 is
    within it; no verdict: there are fewer than MIN_SEEDS seeds.
    """
    if seeds < MIN_SEEDS or interval.low is None or interval.high is None:
        return "no verdict"
    low, high = (interval.low, interval.high) if predicted == "higher" else (-interval.high, -interval.low)
    return "confirmed" if low > 0 else "refuted" if high < 0 else "not confirmed"


def overall_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on a claim of several comparisons.

    Without a verdict on one there is none; one that is refuted refutes the claim; all must be confirmed to confirm it.
    """
    found = set(verdicts)
    order: tuple[Verdict, ...] = ("no verdict", "refuted", "not confirmed", "confirmed")
    return next(verdict for verdict in order if verdict in found)
