"""Consoles and progress bars; every one is made here."""

import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RichCast
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.segment import Segment

from legenda.terminal import SafeStream, escape_controls


def create_console(*, stderr: bool = False, **options: Any) -> Console:
    """Return a console of rich that escapes control characters in what is printed, but not its own colors."""
    console = Console(stderr=stderr, **options)
    console.push_render_hook(_Escape())
    return console


class _Escape(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Escaped(renderable) for renderable in renderables]


class _Escaped:
    def __init__(self, renderable: ConsoleRenderable | RichCast | str) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self._renderable, options):
            yield Segment(text if control else escape_controls(text), style, control)


class _Bar(Progress):
    def start(self) -> None:
        super().start()
        if not self.disable:
            sys.stdout = SafeStream(sys.stdout)  # rich has replaced it, and sets it back at the end


def create_bar(column: ProgressColumn) -> Progress:
    """Return a bar with a further column that is shown on a terminal alone, and removed at the end."""
    console = create_console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), column, TimeRemainingColumn())
    return _Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
