"""Progress bars of commands."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import TaskProgressColumn

from legenda.progress import create_bar
from legenda.terminal import escape_controls


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal, and remove it at the end; show nothing elsewhere.

    Yield a function to call with the number of items done and in total; 0 for an unknown total.
    """
    with create_bar(TaskProgressColumn()) as bar:
        task = bar.add_task(escape_controls(title), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
