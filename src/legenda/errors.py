"""Errors that one sentence explains: what was expected, what was found, and the remedy."""

import difflib
import re
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

from legenda.terminal import escape_controls

__all__ = ["CheckpointError", "ConfigError", "DataError", "LegendaError"]

_MOST_LISTED = 40
"""The largest number of known words that a message lists in full."""

_CPU_HINT = "; without a GPU add --extra-index-url https://download.pytorch.org/whl/cpu"
"""The option of pip that avoids CUDA's gigabytes where an extra depends on torch."""


class LegendaError(Exception):
    """Base class of the errors that this package raises for the caller's mistakes.

    The message is one sentence that names the file, option or key, and the remedy. The command line prints it and
    exits with code 2. Characters that a terminal obeys, and line ends, are escaped: names of files and values come from
    strangers.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(escape_controls(message).replace("\n", "\\n"))


class ConfigError(LegendaError):
    """An option, a setting or an argument has a wrong name, type or value."""


class DataError(LegendaError):
    """A data file (annotations, features, images, predictions, tensors) is missing, damaged or inconsistent."""


class CheckpointError(LegendaError):
    """A run folder, a checkpoint or released weights are missing, damaged or do not fit the model."""


OF_TRANSFORMERS = {
    "num_beams": "beam_size",
    "max_new_tokens": "max_length",
    "num_return_sequences": "num_captions",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "dim",
    "num_train_epochs": "epochs",
    "per_device_train_batch_size": "batch_size",
}
"""Names that the library transformers uses, each with the name of the same thing in Legenda."""


def first_line(error: BaseException) -> str:
    """Return the first line of a library's message that is not empty, or the type of an exception without one."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests the closest known word, or lists them, the first ten of very many."""
    if word in OF_TRANSFORMERS:
        return f"did you mean {OF_TRANSFORMERS[word]}?"
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    if len(known) > _MOST_LISTED:
        known = [*known[:10], f"and {len(known) - 10} others"]
    return f"did you mean {close[0]}?" if close else f"choose from {', '.join(known)}"


def import_extra(module: str, extra: str) -> Any:
    """Return a module that an extra installs; raise ConfigError with the command for it where it cannot be imported."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is missing; {install_line(extra)}") from error
    except ImportError as error:  # of a package that is there, such as one without its shared libraries
        raise ConfigError(f"{module} cannot be imported ({first_line(error)}); {install_line(extra)}") from error


def install_line(extra: str) -> str:
    """Return the end of a sentence with the commands that install an extra: its packages, or from a clone.

    Legenda is on no package index, so that pip finds it in a clone alone.
    """
    requirements = requirements_of(extra)
    ways = f"pip install '.[{extra}]' in a clone of Legenda"
    if requirements:
        packages = " ".join(f"'{requirement}'" for requirement in requirements)
        ways = f"pip install {packages}, or {ways}"
    needs_torch = extra == "torch" or "torch" in map(package_name, requirements)
    return f"install legenda[{extra}] with {ways}{_CPU_HINT if needs_torch else ''}"


def requirements_of(extra: str) -> list[str]:
    """Return the packages that an extra of Legenda installs, such as "h5py>=3.12", itself or by other extras.

    It is empty where Legenda runs from a folder that pip has not installed.
    """
    from importlib import metadata  # late: it takes longer than the help of all commands

    lines: list[tuple[str, str]] = []
    with suppress(metadata.PackageNotFoundError):
        lines = [
            (name.strip(), marker) for name, _, marker in (r.partition(";") for r in metadata.requires("legenda") or ())
        ]
    extras, requirements = [extra], list[str]()
    for name in extras:
        for requirement, marker in lines:
            if f'extra == "{name}"' in marker:
                own = re.fullmatch(r"legenda\[([\w,-]+)\]", requirement)
                if own is None:
                    requirements.append(requirement)
                else:
                    extras += [other for other in own[1].split(",") if other not in extras]
    return requirements


def package_name(requirement: str) -> str:
    """Return the package of a requirement: "mkdocstrings" of "mkdocstrings[python]>=0.30"."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
