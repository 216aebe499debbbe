"""Progress bars on the standard error."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal, and remove it at the end; show nothing elsewhere.

    Yield a function to call with the number of items done and in total; 0 for an unknown total.
    """
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
