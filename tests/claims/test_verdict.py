"""The rule of the verdict, with intervals computed by hand."""

import pytest

from legenda.claims import Interval, decide, overall_verdict, paired_interval

T4 = 2.7764451052
"""The 97.5 % point of Student's t distribution with four degrees of freedom, from a table."""


def test_the_interval_is_that_of_a_table_of_students_t():
    found = paired_interval([0.1, 0.2, 0.3, 0.4, 0.5])  # mean 0.3, standard deviation sqrt(0.025)
    half = T4 * (0.025 / 5) ** 0.5
    assert found.mean == pytest.approx(0.3)
    assert (found.low, found.high) == pytest.approx((0.3 - half, 0.3 + half))


def test_equal_differences_have_no_width_and_one_difference_no_interval():
    assert paired_interval([0.5] * 5) == Interval(0.5, 0.5, 0.5)
    assert paired_interval([0.5]) == Interval(0.5, None, None)
    with pytest.raises(ValueError, match="no differences"):
        paired_interval([])


@pytest.mark.parametrize(
    ("low", "high", "seeds", "higher", "lower"),
    [
        (0.1, 0.3, 5, "confirmed", "refuted"),
        (-0.3, -0.1, 5, "refuted", "confirmed"),
        (-0.1, 0.3, 5, "not confirmed", "not confirmed"),
        (0.0, 0.3, 5, "not confirmed", "not confirmed"),
        (0.0, 0.0, 9, "not confirmed", "not confirmed"),
        (0.1, 0.3, 4, "no verdict", "no verdict"),
        (None, None, 5, "no verdict", "no verdict"),
    ],
)
def test_the_verdict_follows_from_the_interval(low, high, seeds, higher, lower):
    interval = Interval(0.0, low, high)
    assert decide(interval, seeds, "higher") == higher
    assert decide(interval, seeds, "lower") == lower


@pytest.mark.parametrize(
    ("verdicts", "overall"),
    [
        (["confirmed", "confirmed"], "confirmed"),
        (["confirmed", "not confirmed"], "not confirmed"),
        (["confirmed", "not confirmed", "refuted"], "refuted"),
        (["refuted", "no verdict"], "no verdict"),
    ],
)
def test_all_comparisons_must_hold(verdicts, overall):
    assert overall_verdict(verdicts) == overall
