"""Signals: the state is saved at the next step, and the same run goes on as if it had not been stopped."""

import os
import signal

import pytest
from small_runs import assert_same, outcome, run

from legenda.training.checkpoint import read_history
from legenda.training.loop import SIGNALS, SignalFlag, TrainingInterrupted, TrainingLoop

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("method", "at", "signum", "saved", "validations"),
    [
        ("_learning_rate", 5, signal.SIGTERM, 6, 0),  # the last step of an epoch, whose validation may take long
        pytest.param("_learning_rate", 0, signal.SIGINT, 1, 0, marks=pytest.mark.slow),
        ("_validate", 24, signal.SIGTERM, 24, 4),  # the last validation
    ],
)
def test_a_signal_saves_the_state_and_the_run_goes_on(
    completed_run, tmp_path, monkeypatch, method, at, signum, saved, validations
):
    original, handlers = getattr(TrainingLoop, method), [signal.getsignal(number) for number in SIGNALS]

    def signalled(self, *arguments, **options):
        if self.progress.step == at:
            os.kill(os.getpid(), signum)
        return original(self, *arguments, **options)

    monkeypatch.setattr(TrainingLoop, method, signalled)
    with pytest.raises(TrainingInterrupted, match=rf"{signum.name}.* {saved};"):
        run(tmp_path / "run")
    assert [signal.getsignal(number) for number in SIGNALS] == handlers
    assert sum("validation" in record for record in read_history(tmp_path / "run")) == validations
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
