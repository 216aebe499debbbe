"""How long computations report their progress to a caller that may draw it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

ProgressBar = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
"""Opens a progress bar with a title; call what it yields with the number of items done and in total."""


@contextmanager
def no_progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:  # noqa: ARG001
    """Show nothing."""
    yield lambda done, total: None  # noqa: ARG005
