"""The two-way bootstrap of the study of Flickr8k, in cases whose answer is known."""

import numpy as np
from flickr8k_table import two_sided_p, two_way_bootstrap

from legenda.metrics import Scores, intervals

PHOTOGRAPHS = np.random.default_rng(1).gamma(0.5, size=400)


def test_equal_seeds_leave_the_bootstrap_over_photographs():
    draws = two_way_bootstrap(np.tile(PHOTOGRAPHS, (3, 1)))[0]
    images = {str(number): {"CIDEr-D": value} for number, value in enumerate(PHOTOGRAPHS.tolist())}
    known = intervals(Scores({"CIDEr-D": PHOTOGRAPHS.mean()}, images, 400, {}), resamples=10_000)["CIDEr-D"]
    np.testing.assert_allclose(np.quantile(draws, [0.025, 0.975]), [known.low, known.high], rtol=0.01)


def test_equal_photographs_leave_the_seeds():
    first, second = two_way_bootstrap(*(np.outer([level, level + 1, level + 2], np.ones(50)) for level in (0, 5)))
    means, counts = np.unique((3 * first).round(9), return_counts=True)
    np.testing.assert_allclose(means, range(7))
    np.testing.assert_allclose(counts / len(first), np.array([1, 3, 6, 7, 6, 3, 1]) / 27, atol=0.015)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05


def test_photographs_are_paired_and_p_counts_both_sides():
    better, worse = two_way_bootstrap(PHOTOGRAPHS[None] + 0.01, PHOTOGRAPHS[None])
    np.testing.assert_allclose(better - worse, 0.01)
    assert two_sided_p(better - worse) == 2 / 10_001
    assert two_sided_p(np.array([-1.0, 1.0, 2.0])) == 1.0
