"""Terminals: progress bars, and text in which characters that a terminal obeys are shown as escapes."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RichCast
    from rich.progress import Progress, ProgressColumn
    from rich.segment import Segment

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tabs and line feeds, separators, bidirectional formatting, and bytes of file names that are
not UTF-8."""


def escape_controls(text: object) -> str:
    """Return a text in which characters that a terminal obeys are escapes of four hex digits, which JSON has too."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", str(text))


LINE_INTERVAL_S = 30.0
"""Seconds between two lines of progress where there is no terminal."""
_WIDTH = 400
"""Columns of the output where it is no terminal."""
_HALF = 800
"""Characters that are kept at each end of a long message."""


def shorten(message: str) -> str:
    """Return a message without the middle of what it quotes from a damaged file."""
    return message if len(message) <= 2 * _HALF else f"{message[:_HALF]} ... {message[-_HALF:]}"


def counted(number: int, nouns: str, form: str = "") -> str:
    """Return a number and its noun, given as a regular plural: "1 image" or "2 images"; form: that of the number."""
    return f"{number:{form}} {nouns.removesuffix('s') if number == 1 else nouns}"


class _SafeStream:
    """A text stream that escapes what is written to it, also where its encoding lacks a character."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text and return its length."""
        encoding = self.stream.encoding or "utf-8"
        self.stream.write(escape_controls(text).encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    @property
    def rich_proxied_file(self) -> object:
        """The stream itself, to which consoles of rich write colors."""
        return unguarded(self.stream)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


def unguarded(stream: Any) -> Any:
    """Return the stream behind _SafeStream and behind the redirections of rich."""
    return getattr(stream, "rich_proxied_file", stream)


@contextmanager
def safe_stdout() -> Iterator[None]:
    """Let the standard output be a _SafeStream."""
    before = sys.stdout
    sys.stdout = _SafeStream(before)
    try:
        yield
    finally:
        sys.stdout = before


def create_console(*, stderr: bool = False, **options: Any) -> Console:
    """Return a console of rich that escapes control characters in what is printed, but not its own colors.

    Where it is no terminal, it does not wrap lines.
    """
    from rich.console import Console  # late, as in `create_bar`: most commands print neither tables nor bars

    console = Console(stderr=stderr, **options)
    if not console.is_terminal:
        console.width = _WIDTH
    hook: Any = _Escape()
    console.push_render_hook(hook)
    return console


class _Escape:
    """A render hook of rich, which escapes what is printed."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Escaped(renderable) for renderable in renderables]


class _Escaped:
    def __init__(self, renderable: ConsoleRenderable | RichCast | str) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for text, style, control in console.render(self._renderable, options):
            yield Segment(text if control else escape_controls(text), style, control)


def create_bar(column: ProgressColumn) -> Progress:
    """Return a progress bar with one more column; terminals alone show it, and it is removed at the end."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    class Bar(Progress):
        def start(self) -> None:
            super().start()
            if not self.disable:
                sys.stdout = _SafeStream(sys.stdout)  # rich has replaced it, and sets it back at the end

        def stop(self) -> None:
            if not self.disable:  # rich before 15 prints an empty line
                super().stop()

    console = create_console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), column, TimeRemainingColumn())
    return Bar(*columns, console=console, transient=True, disable=not console.is_terminal)


STOPPED = threading.Event()
"""Set by a signal that ends the command, whose exception a library may have swallowed."""


def check_stopped() -> None:
    """Raise KeyboardInterrupt where a signal has ended the command."""
    if STOPPED.is_set():
        raise KeyboardInterrupt


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar with a title on a terminal, and remove it at the end; elsewhere print a line now and then.

    Call what it yields with the number of items done and in total, 0 if unknown.
    """
    show: Callable[[int, int], None] | None = None
    printed = time.monotonic()

    def update(done: int, total: int) -> None:
        nonlocal printed
        check_stopped()
        if show is not None:
            show(done, total)
        elif time.monotonic() - printed >= LINE_INTERVAL_S:
            printed = time.monotonic()
            print(f"{escape_controls(title)}: {done}{f' of {total}' if total else ''}", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield update
        return
    from rich.progress import TaskProgressColumn

    with create_bar(TaskProgressColumn()) as bar:
        if not bar.disable:  # as on a terminal without cursor
            task = bar.add_task(escape_controls(title), total=None)

            def show(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total or None)

        yield update
