"""The log of a command: what the library logs goes to the standard error."""

import logging
import sys
import warnings
from typing import TextIO

from legenda.terminal import escape_controls


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Write to the current standard error, which a progress bar replaces."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        return escape_controls(super().format(record))


def log_to_stderr() -> None:
    """Write messages of the logger "legenda" from the level INFO on, as they are, unless it has a handler already.

    Pillow's warnings of damaged metadata are not printed.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    logger = logging.getLogger("legenda")
    if not logger.handlers:
        logger.setLevel(logging.INFO)
        logger.addHandler(_StderrHandler())
