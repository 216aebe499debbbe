"""Options of a command: a configuration filled from the command line by tyro."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TypeVar

import tyro

from legenda.cli._outputs import check_out
from legenda.compute import ComputeOptions
from legenda.terminal import unguarded

T = TypeVar("T")


def parse(options: type[T], arguments: Sequence[str], command: str) -> T:
    """Return the options of `legenda COMMAND` as an instance of `options`.

    tyro prints the help, which exits with code 0, and mistakes, which exit with code 2. Raise ConfigError for a value
    out of bounds and for a device that this machine does not have.
    """
    with redirect_stdout(unguarded(sys.stdout)):  # tyro colors the help by ANSI sequences
        values = tyro.cli(options, args=list(arguments), prog=f"legenda {command}")
    check_out(values, command)
    if isinstance(values, ComputeOptions):
        values.resolve()
    return values
