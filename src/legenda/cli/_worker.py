"""`python -m legenda.cli._worker`: run commands one after another, and exit when the parent process does.

The parent keeps the other end of the standard input open. It closes when the parent exits, even when it is killed, so
no worker goes on writing to a run folder that another process may resume.
"""

import os
import sys
import threading

from legenda.cli.main import main

SEPARATOR = "--then"
"""Separates two commands."""


def _exit_with_parent() -> None:
    """Exit when the standard input closes; read unbuffered, as the lock of Python's buffer would block the exit."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def run(arguments: list[str]) -> None:
    """Run the commands; the first that fails ends the process with its exit code."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    while arguments:
        end = arguments.index(SEPARATOR) if SEPARATOR in arguments else len(arguments)
        main(arguments[:end])
        arguments = arguments[end + 1 :]


if __name__ == "__main__":
    run(sys.argv[1:])
