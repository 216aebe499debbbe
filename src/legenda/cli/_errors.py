"""Errors of a command as one sentence and an exit code."""

import errno
import re
import signal
import sys

from legenda.errors import LegendaError
from legenda.terminal import escape_controls

_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
_PATH_ERRORS = {errno.ENAMETOOLONG, errno.ELOOP, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES}
_NO_MEMORY = re.compile("out of memory|allocate memory|size calculation overflowed")  # of torch
_HALF = 800
"""Characters at both ends of a long message."""


def exit_code(command: str, error: BaseException) -> int:
    """Print one sentence about an error and return the exit code; raise any error that is not the caller's mistake."""
    command = escape_controls(command)
    if isinstance(error, BrokenPipeError):
        sys.stderr.close()  # the reader of the output has closed it, which is no error
        return 0
    if isinstance(error, KeyboardInterrupt):
        signum = getattr(error, "signum", None)
        print("stopped" if signum is None else error, file=sys.stderr)
        return 128 + (signum or signal.SIGINT)
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        name = escape_controls(error.filename or "a file")
        print(
            f"legenda {command}: {name} could not be written ({error.strerror}); free some space and call it again",
            file=sys.stderr,
        )
        return 2
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error):
        print(f"legenda {command}: {error.strerror}; free some space, or set TMPDIR to another folder", file=sys.stderr)
        return 2
    if isinstance(error, OSError) and error.errno in _PATH_ERRORS and error.filename is not None:
        name = _shorten(escape_controls(error.filename))
        print(f"legenda {command}: {name} cannot be opened ({error.strerror}); name another file", file=sys.stderr)
        return 2
    if isinstance(error, LegendaError):
        print(f"legenda {command}: {_shorten(str(error))}", file=sys.stderr)
        return 2
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
        remedy = "choose smaller sizes, such as those of batches and beams, or a machine with more memory"
        print(f"legenda {command}: there is not enough memory; {remedy}", file=sys.stderr)
        return 2
    raise error


def _shorten(message: str) -> str:
    """Return a message without the middle of what it quotes from a damaged file."""
    return message if len(message) <= 2 * _HALF else f"{message[:_HALF]} ... {message[-_HALF:]}"
