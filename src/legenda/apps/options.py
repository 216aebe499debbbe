"""Options of a command: a dataclass filled from the command line by tyro."""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import tyro

from legenda.errors import UserError, nearest

T = TypeVar("T")

_RULE = re.compile(r"[─╭╮╰╯│|+]+|-{4,}")
_FLAG = re.compile(r"--[a-z][\w.-]*")


def parse(options: type[T], arguments: Sequence[str], command: str, *, default: Any = None) -> T:
    """The options of `legenda COMMAND`; `default` is an instance whose values stand where nothing is said.

    `--help` prints the help and leaves with exit code 0. Raises UserError for an unknown option (the nearest one is
    named) or a value of the wrong type.
    """
    extra = {} if default is None else {"default": default}

    def ask(given: Sequence[str]) -> T:
        return tyro.cli(options, args=list(given), prog=f"legenda {command}", **extra)

    if {"-h", "--help"} & set(arguments):
        return ask(arguments)
    complaint = io.StringIO()
    with contextlib.redirect_stderr(complaint), contextlib.suppress(SystemExit), _unwrapped():
        return ask(arguments)
    raise UserError(_misspelt(ask, arguments) or _sentence(complaint.getvalue(), command))


def _misspelt(ask: Callable[[Sequence[str]], object], arguments: Sequence[str]) -> str | None:
    """A sentence on the first option that does not exist; tyro keeps it back while another one is missing."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit), _unwrapped():
        ask(["--help"])
    known = set(_FLAG.findall(told.getvalue()))
    for argument in arguments:
        given = argument.split("=")[0].replace("_", "-")
        if given.startswith("--") and given not in known:
            return f"there is no option {given}; {nearest(given, known)}"
    return None


@contextlib.contextmanager
def _unwrapped() -> Iterator[None]:
    """A terminal so wide that no name is broken over two lines."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "10000"
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


def _sentence(complaint: str, command: str) -> str:
    """The boxed complaint of tyro as one sentence."""
    lines = [_RULE.sub("", line).strip() for line in complaint.splitlines()[1:]]
    text = " ".join(line for line in lines if line)
    wrong = re.split(r"Argument helptext:|For full helptext", text)[0].strip().rstrip(".:")
    return f"{wrong}; see legenda {command} --help"
