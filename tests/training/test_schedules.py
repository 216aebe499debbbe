"""The learning rate, step by step."""

import math

import pytest

from legenda.config import merge
from legenda.errors import LegendaError
from legenda.tasks.base import ScheduledSamplingConfig
from legenda.training import Constant, TrainingConfig
from legenda.training.schedules import Cosine, EpochwiseLR, InverseSqrt, Linear, Noam, Plateau, StepDecay


def test_warm_up_rises_in_a_line_to_the_rate_and_stays():
    schedule = StepDecay(learning_rate=1.0, warmup_steps=4, decay_after=())
    assert [schedule.at(step, 1) for step in range(6)] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("mode", ["python", "json"])
def test_a_stage_is_dumped_with_all_fields_of_its_schedule(mode):
    dumped = TrainingConfig(schedule=Constant(learning_rate=2e-4)).model_dump(mode=mode)
    assert dumped["schedule"] == {"kind": "constant", "learning_rate": 2e-4, "warmup_steps": 0}
    assert merge(TrainingConfig, dumped, "training").schedule == Constant(learning_rate=2e-4)


def test_the_rate_falls_after_each_named_epoch():
    """The default: halved after the epochs 6, 9 and 12 of 15."""
    schedule = StepDecay(learning_rate=8.0, warmup_steps=0)
    rates = [schedule.at(10_000, epoch) for epoch in range(1, 16)]
    assert rates == [8.0] * 6 + [4.0] * 3 + [2.0] * 3 + [1.0] * 3


def test_ngsan_over_fifteen_epochs():
    """min(t * 1e-4, 3e-4) to epoch 6, then halved every three epochs."""
    schedule = EpochwiseLR()
    for t in range(1, 16):
        expected = min(t * 1e-4, 3e-4) * 0.5 ** max(0, math.ceil((t - 6) / 3))
        assert schedule.at(12345, t) == pytest.approx(expected)
    assert schedule.at(0, 40) == schedule.at(0, 15)


def test_noam_peaks_where_the_warm_up_ends():
    schedule = Noam(dim=1024, warmup_steps=10_000)
    assert schedule.at(9_999, 1) == pytest.approx(3.125e-4)  # X-LAN's peak
    assert Noam(dim=768).at(9_999, 1) == pytest.approx(3.608e-4, rel=1e-3)  # X-Transformer's
    assert schedule.at(0, 1) == pytest.approx(3.125e-8)
    assert schedule.at(39_999, 1) == pytest.approx(3.125e-4 / 2)
    assert max(schedule.at(step, 1) for step in range(9_000, 11_000)) == schedule.at(9_999, 1)


def test_inverse_sqrt_rises_from_the_first_rate_and_falls_with_the_root():
    schedule = InverseSqrt()
    assert [schedule.at(step, 1) for step in (0, 2_000, 4_000, 16_000, 100_000)] == pytest.approx(
        [1e-7, (1e-7 + 5e-4) / 2, 5e-4, 2.5e-4, 1e-4]
    )
    assert max(schedule.at(step, 1) for step in range(10_000)) == schedule.at(4_000, 1)


def test_a_plateau_lowers_the_rate_after_its_patience():
    schedule = Plateau(learning_rate=1.0, factor=0.5, patience=1)
    scores = [0.5, 0.6, 0.6, 0.55, 0.7, 0.1, 0.1, 0.1, 0.1]
    rates = [schedule.at(0, 1, scores[:count]) for count in range(len(scores) + 1)]
    assert rates == [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]


def test_a_constant_and_half_a_wave():
    assert [Constant(learning_rate=4.0, warmup_steps=2).at(step, 9) for step in range(4)] == [2.0, 4.0, 4.0, 4.0]
    schedule = Cosine(learning_rate=3.0, min_learning_rate=1.0, total_steps=12, warmup_steps=2)
    assert [schedule.at(step, 1) for step in (0, 1, 2, 7, 12, 99)] == pytest.approx([1.5, 3.0, 3.0, 2.0, 1.0, 1.0])


def test_scheduled_sampling_as_released():
    aoanet, xlan = ScheduledSamplingConfig(increment=0.05), ScheduledSamplingConfig(increment=0.05, start_epoch=7)
    for done in range(80):  # whole epochs before this one
        assert aoanet.at(done + 1) == pytest.approx(min(0.05 * (done // 5), 0.5))
        before = done - 1
        expected = min(0.05 * ((before - 6) // 5), 0.5) if before > 6 else 0.0
        assert xlan.at(done + 1) == pytest.approx(expected)
    assert ScheduledSamplingConfig().at(50) == 0


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (StepDecay, {"learning_rate": -1e-3}),
        (StepDecay, {"decay": 0.0}),
        (EpochwiseLR, {"learning_rates": ()}),
        (InverseSqrt, {"learning_rate": 1e-8}),
        (Cosine, {"min_learning_rate": 1.0}),
        (Cosine, {"total_steps": 10}),
        (ScheduledSamplingConfig, {"increment": 2.0}),
    ],
)
def test_what_no_schedule_can_follow_is_refused(kind, wrong):
    with pytest.raises(LegendaError, match=r"must be|needs"):
        kind(**wrong)


def test_a_linear_rate_falls_to_nothing_and_stays():
    schedule = Linear(learning_rate=8.0, total_steps=4)
    assert [schedule.at(step, 1) for step in range(6)] == [8.0, 6.0, 4.0, 2.0, 0.0, 0.0]
