"""Options of a command: a dataclass filled from the command line by tyro."""

import contextlib
import io
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import tyro

from legenda.errors import UserError

T = TypeVar("T")

_RULE = re.compile(r"[─╭╮╰╯│]+")


def parse(options: type[T], arguments: Sequence[str], command: str, *, default: Any = None) -> T:
    """The options of `legenda COMMAND`; `default` is an instance whose values stand where nothing is said.

    `--help` prints the help and leaves with exit code 0. Raises UserError for an unknown option (the nearest one is
    named) or a value of the wrong type.
    """
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            extra = {} if default is None else {"default": default}
            return tyro.cli(options, args=list(arguments), prog=f"legenda {command}", **extra)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UserError(_sentence(complaint.getvalue(), command)) from None


def _sentence(complaint: str, command: str) -> str:
    """Tyro's boxed complaint as one sentence: what is wrong, and the nearest right option when it names one."""
    lines = [_RULE.sub("", line).strip() for line in complaint.splitlines()[1:]]
    text = " ".join(line for line in lines if line)
    wrong = re.split(r"Perhaps you meant:|Argument helptext:|For full helptext", text)[0].strip().rstrip(".:")
    near = re.search(r"Perhaps you meant:\s*(--[\w.-]+)", text)
    remedy = f"did you mean {near[1]}?" if near else f"see legenda {command} --help"
    return f"{wrong}; {remedy}"
