"""The learning rate, step by step."""

import pytest

from legenda.errors import UserError
from legenda.training import StepDecay


def test_warm_up_rises_in_a_line_to_the_rate_and_stays():
    schedule = StepDecay(rate=1.0, warmup_steps=4, decay_after=())
    assert [schedule.at(step, 1) for step in range(6)] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_no_warm_up_begins_at_the_rate():
    assert StepDecay(rate=0.5, warmup_steps=0).at(0, 1) == 0.5


def test_the_rate_falls_after_each_named_epoch():
    """The default: halved after the epochs 6, 9 and 12 of 15."""
    schedule = StepDecay(rate=8.0, warmup_steps=0)
    rates = [schedule.at(10_000, epoch) for epoch in range(1, 16)]
    assert rates == [8.0] * 6 + [4.0] * 3 + [2.0] * 3 + [1.0] * 3


def test_warm_up_and_decay_multiply():
    schedule = StepDecay(rate=1.0, warmup_steps=10, decay=0.1, decay_after=(1,))
    assert schedule.at(4, 2) == pytest.approx(0.5 * 0.1)


@pytest.mark.parametrize(
    "wrong", [{"rate": 0.0}, {"rate": -1e-3}, {"warmup_steps": -1}, {"decay": 0.0}, {"rate": float("nan")}]
)
def test_what_no_training_can_follow_is_refused(wrong):
    with pytest.raises(
        UserError, match=r"training\.schedule needs rate and decay above 0 and warmup_steps of 0 or more"
    ):
        StepDecay(**wrong)
