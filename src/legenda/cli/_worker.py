"""`python -m legenda.cli._worker`: commands one after another, in a process that ends with the one that started it.

The starter keeps the other end of the standard input open; when it is gone, even killed, so is this process, and
nothing goes on working in folders that somebody may take up again.
"""

import os
import sys
import threading

from legenda.cli.main import main

THEN = "--then"
"""What stands between two commands."""


def _follow() -> None:
    """Ends the process once the standard input does; read without Python's buffer, whose lock would outlive the end."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def run(arguments: list[str]) -> None:
    """Runs the commands; the first that fails ends the process with its exit code."""
    threading.Thread(target=_follow, daemon=True).start()
    while arguments:
        end = arguments.index(THEN) if THEN in arguments else len(arguments)
        main(arguments[:end])
        arguments = arguments[end + 1 :]


if __name__ == "__main__":
    run(sys.argv[1:])
