"""Options of a command: a dataclass filled from the command line by tyro."""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from typing import Any, TypeVar, get_type_hints

import tyro
from tyro import _errors as events  # the only structured form of tyro's errors; pyproject.toml bounds its version

from legenda.cli._outputs import check_out
from legenda.cli._parse_errors import describe_error, unknown_option
from legenda.cli._suggest import suggest_option
from legenda.compute import ComputeOptions
from legenda.errors import ConfigError
from legenda.terminal import unguarded

T = TypeVar("T")


def parse(
    options: type[T],
    arguments: Sequence[str],
    command: str,
    *,
    config: Sequence[Any] = (),
    help_option: str = "--help",
) -> T:
    """Return the options of `legenda COMMAND` as an instance of the dataclass `options`.

    config: markers of `tyro.conf`. help_option: what lists all options. `--help` prints the help and exits with code 0.
    Raise ConfigError for an unknown option (the one that is meant is suggested), a missing option or value, and a wrong
    value or device.
    """

    def reject(event: events.ParseErrorEvent) -> None:
        unknown = unknown_option(event)
        if unknown is not None:
            known = ["--help", *_option_names(options)]
            remedy = suggest_option(unknown, known, f"legenda {command} {help_option}")
            raise ConfigError(f"there is no option {unknown}; {remedy}")
        message = describe_error(event)
        if message is not None:
            raise ConfigError(f"{message}; see legenda {command} {help_option}")

    # tyro colors the help by ANSI sequences
    with events.on_parse_error(reject), redirect_stdout(unguarded(sys.stdout)):
        found = tyro.cli(options, args=list(arguments), prog=f"legenda {command}", config=config)
    check_out(found, command)
    if isinstance(found, ComputeOptions):
        found.resolve()
    return found


def _option_names(options: Any, prefix: str = "--") -> Iterator[str]:
    """Yield the options of a dataclass, or of an instance of one; those of a nested dataclass follow a dot."""
    hints = get_type_hints(options if isinstance(options, type) else type(options), include_extras=True)
    for field in dataclasses.fields(options):
        annotations = getattr(hints[field.name], "__metadata__", ())
        if tyro.conf.Positional in annotations or tyro.conf.Suppress in annotations:
            continue
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        value = getattr(options, field.name, default)
        given = next((marker.name for marker in annotations if getattr(marker, "name", None)), field.name)
        name = prefix + given.replace("_", "-")
        yield from _option_names(value, f"{name}.") if dataclasses.is_dataclass(value) else (name,)
