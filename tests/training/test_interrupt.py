"""Signals: the state is saved at the next step, and the same run goes on as if it had not been stopped."""

import os
import signal

import pytest
from small_runs import TRAINING, assert_same, outcome, run

from legenda.training.loop import SIGNALS, SignalFlag, TrainingInterrupted, TrainingLoop


@pytest.mark.parametrize(("signum", "step"), [(signal.SIGTERM, 6), (signal.SIGINT, 1)])
def test_a_signal_saves_the_state_and_the_run_goes_on(completed_run, tmp_path, monkeypatch, signum, step):
    original, handlers = TrainingLoop._learning_rate, [signal.getsignal(number) for number in SIGNALS]

    def learning_rate(self, steps_ago=0):
        if steps_ago == 0 and self.progress.step == step - 1:
            os.kill(os.getpid(), signum)
        return original(self, steps_ago)

    monkeypatch.setattr(TrainingLoop, "_learning_rate", learning_rate)
    with pytest.raises(TrainingInterrupted, match=rf"{signum.name} stopped training after step {step}; its state is"):
        run(tmp_path / "run")
    assert [signal.getsignal(number) for number in SIGNALS] == handlers
    monkeypatch.undo()
    run(tmp_path / "run")
    assert_same(outcome(completed_run), outcome(tmp_path / "run"))


def test_a_signal_in_the_last_validation_is_not_lost(completed_run, tmp_path, monkeypatch):
    original = TrainingLoop._validate

    def validate(self, progress_bar):
        if self.progress.epoch == TRAINING.epochs:
            os.kill(os.getpid(), signal.SIGTERM)
        original(self, progress_bar)

    monkeypatch.setattr(TrainingLoop, "_validate", validate)
    with pytest.raises(TrainingInterrupted, match="SIGTERM stopped training after step 24"):
        run(tmp_path / "run")
    monkeypatch.undo()
    run(tmp_path / "run")
    assert_same(outcome(completed_run), outcome(tmp_path / "run"))


def _interrupt_twice(flag: SignalFlag) -> None:
    with flag.listen():
        os.kill(os.getpid(), signal.SIGINT)
        assert flag.signum == signal.SIGINT
        os.kill(os.getpid(), signal.SIGINT)


def test_a_second_signal_is_not_held_back():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs with it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            _interrupt_twice(SignalFlag())
    finally:
        signal.signal(signal.SIGINT, before)
