"""The statistics of an experiment: paired intervals, exact sign-flip tests, Holm's correction, verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import ttest_1samp

from legenda.metrics import resampling

Verdict = Literal["supported", "contradicted", "no relevant effect", "inconclusive"]
LEVEL = 0.05


@dataclass(frozen=True)
class Effect:
    """The mean of paired differences, its 95 % and 90 % t intervals, and the p value of the sign-flip test."""

    differences: tuple[float, ...]
    mean: float
    interval: tuple[float, float]
    inner: tuple[float, float]
    p: float


def paired_effect(differences: Sequence[float]) -> Effect:
    """Return the effect of at least two differences; equal differences have intervals of no width."""
    values = np.asarray(differences, float)
    mean = float(values.mean())
    if np.ptp(values) == 0:
        outer = inner = (mean, mean)
    else:
        test = ttest_1samp(values, 0.0)
        outer, inner = (tuple(map(float, test.confidence_interval(level))) for level in (0.95, 0.90))
    return Effect(tuple(values.tolist()), mean, outer, inner, sign_flip_p(values))


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


def decide(effect: Effect, adjusted_p: float, predicted: int, relevant: float, *, control_passed: bool) -> Verdict:
    """Return the verdict on a predicted sign.

    inconclusive where the control has not passed; no relevant effect: the whole 90 % interval is closer to 0 than
    `relevant`; supported, contradicted: the adjusted p value is below LEVEL, and the mean has the predicted sign or
    the other one; else inconclusive.
    """
    if not control_passed:
        return "inconclusive"
    if -relevant < effect.inner[0] and effect.inner[1] < relevant:
        return "no relevant effect"
    if adjusted_p < LEVEL:
        return "supported" if effect.mean * predicted > 0 else "contradicted"
    return "inconclusive"
