"""What a person sees while a model trains: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 10.0
"""Seconds between two plain lines."""


class TrainingProgress:
    """Shows steps, loss, speed and time left; `note` adds a line of its own, such as a validation."""

    def __init__(self, title: str, total: int, done: int, *, shown: bool = True) -> None:
        """shown: whether anything is; of several processes one is enough."""
        self.shown = shown
        self.title, self.total, self.done = title, total, done
        self.first, self.began = done, time.monotonic()
        self.last_line = self.began
        self.console = Console(file=sys.stderr)
        self.bar: Progress | None = None
        if shown and self.console.is_terminal:
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
        """One more step is done; `means` are those of late, such as that of the loss."""
        self.done += 1
        now = time.monotonic()
        speed = (self.done - self.first) / max(now - self.began, 1e-9)
        told = "  ".join(f"{name} {value:.3f}" for name, value in means.items())
        state = f"epoch {epoch}  step {self.done}/{self.total}  {told}  {speed:.1f} steps/s"
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, state=state)
        elif self.shown and (now - self.last_line >= PLAIN_SECONDS or self.done == self.total):
            self.last_line = now
            left = (self.total - self.done) / max(speed, 1e-9)
            print(f"{self.title}  {state}  {left:.0f} s left", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """A line that stays."""
        if self.bar is not None:
            self.bar.console.print(f"{self.title}  {text}", highlight=False)
        elif self.shown:
            print(f"{self.title}  {text}", file=sys.stderr, flush=True)
