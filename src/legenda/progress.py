"""Progress bars on the standard error; every bar is made here."""

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn


def create_bar(column: ProgressColumn) -> Progress:
    """Return a bar with a further column that is shown on a terminal alone, and removed at the end."""
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), column, TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
