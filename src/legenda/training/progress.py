"""Progress of training: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_INTERVAL_S = 10.0
"""Seconds between two plain lines."""


class TrainingProgress:
    """Prints steps, loss, speed and remaining time to the standard error."""

    def __init__(self, title: str, total: int, done: int, *, enabled: bool = True) -> None:
        """enabled: whether to print at all; one of several processes is enough."""
        self.enabled = enabled
        self.title, self.total, self.done = title, total, done
        self.initial, self.started_at = done, time.monotonic()
        self.last_line_at = self.started_at
        self.console = Console(file=sys.stderr)
        self.bar: Progress | None = None
        if enabled and self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
            self.bar = Progress(*columns, TimeRemainingColumn(), console=self.console, transient=True)
            self.task = self.bar.add_task(title, total=total, completed=done, state="")

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def step(self, epoch: int, means: Mapping[str, float]) -> None:
        """Count one step; `means` are recent averages, such as that of the loss."""
        self.done += 1
        now = time.monotonic()
        speed = (self.done - self.initial) / max(now - self.started_at, 1e-9)
        values = "  ".join(f"{name} {value:.3f}" for name, value in means.items())
        state = f"epoch {epoch}  step {self.done}/{self.total}  {values}  {speed:.1f} steps/s"
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, state=state)
        elif self.enabled and (now - self.last_line_at >= PLAIN_INTERVAL_S or self.done == self.total):
            self.last_line_at = now
            remaining = (self.total - self.done) / max(speed, 1e-9)
            print(f"{self.title}  {state}  {remaining:.0f} s left", file=sys.stderr, flush=True)

    def print(self, text: str) -> None:
        """Print a line that stays, such as the scores of a validation."""
        if self.bar is not None:
            self.bar.console.print(f"{self.title}  {text}", highlight=False)
        elif self.enabled:
            print(f"{self.title}  {text}", file=sys.stderr, flush=True)
