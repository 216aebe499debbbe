"""Progress of training: a bar on a terminal, lines in the log elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.progress import TextColumn

from legenda.terminal import create_bar

_LOG = logging.getLogger(__name__)

LOG_INTERVAL_S = 10.0
"""Seconds between two lines of steps in the log."""


class TrainingProgress:
    """Shows steps, loss, speed and remaining time."""

    def __init__(self, title: str, total: int, done: int, *, enabled: bool = True) -> None:
        """enabled: whether to show and log anything; one of several processes is enough."""
        self.enabled = enabled
        self.title, self.total, self.done = title, total, done
        self.initial, self.started_at = done, time.monotonic()
        self.last_line_at = self.started_at
        self.bar = create_bar(TextColumn("{task.fields[state]}"))
        self.bar.disable |= not enabled
        self.task = self.bar.add_task(title, total=total, completed=done, state="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def step(self, epoch: int, means: Mapping[str, float]) -> None:
        """Count one step; `means` are recent averages, such as that of the loss."""
        self.done += 1
        now = time.monotonic()
        speed = (self.done - self.initial) / max(now - self.started_at, 1e-9)
        values = "  ".join(f"{name} {value:.3f}" for name, value in means.items())
        state = f"epoch {epoch}  step {self.done}/{self.total}  {values}  {speed:.1f} steps/s"
        self.bar.update(self.task, completed=self.done, state=state)
        if self.bar.disable and (now - self.last_line_at >= LOG_INTERVAL_S or self.done == self.total):
            self.last_line_at = now
            self.log(f"{state}  {(self.total - self.done) / max(speed, 1e-9):.0f} s left")

    def log(self, text: str) -> None:
        """Log a line, such as the scores of a validation."""
        if self.enabled:
            _LOG.info("%s  %s", self.title, text)
