"""Signals that end training at the next step, with its state saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""Ctrl-C, the end of a job, and the warning that clusters send before it."""


class TrainingInterrupted(KeyboardInterrupt):
    """A signal has ended training; its state is saved. `signum`: the number of the signal."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.signum = signum


class SignalFlag:
    """The first of SIGNALS that has arrived, or None; a second signal has its usual effect at once."""

    def __init__(self) -> None:
        self.signum: int | None = None

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Record the signals while the context lasts; in other threads than the main one nothing is recorded."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}

        def record(number: int, _: FrameType | None) -> None:
            self.signum = number
            _restore(before)

        try:
            for number in SIGNALS:
                signal.signal(number, record)
            yield
        finally:
            _restore(before)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
