"""Errors that one sentence explains: what was expected, what was found, and the remedy."""

import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import Any

_MOST_LISTED = 40
"""Known words that a suggestion lists."""


class LegendaError(Exception):
    """Base class of the errors that this package raises for the caller's mistakes.

    The message is one sentence that names the file, option or key, and the remedy. The command line prints it and
    exits with code 2.
    """


class ConfigError(LegendaError):
    """An option, a setting or an argument has a wrong name, type or value."""


class DataError(LegendaError):
    """A data file (annotations, features, images, predictions, tensors) is missing, damaged or inconsistent."""


class CheckpointError(LegendaError):
    """A run folder, a checkpoint or released weights are missing, damaged or do not fit the model."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests the closest known word, or lists them, the first ten of very many."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    if len(known) > _MOST_LISTED:
        known = [*known[:10], f"and {len(known) - 10} others"]
    return f"did you mean {close[0]}?" if close else f"choose from {', '.join(known)}"


def import_extra(module: str, extra: str) -> Any:
    """Return a module that an extra installs; raise ConfigError with the command for it where a package is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f'{error.name} is missing; install it with pip install "legenda[{extra}]"') from error
