"""Options of a command: a dataclass filled from the command line by tyro."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, get_type_hints

import tyro
from tyro import _errors as events  # the only structured form of tyro's errors; pyproject.toml bounds its version

from legenda.compute import ComputeOptions
from legenda.errors import ConfigError, did_you_mean

T = TypeVar("T")


def parse(options: type[T], arguments: Sequence[str], command: str, *, config: Sequence[Any] = ()) -> T:
    """Return the options of `legenda COMMAND` as an instance of the dataclass `options`.

    config: markers of `tyro.conf`. `--help` prints the help and exits with code 0. Raise ConfigError for an unknown
    option (the most similar one is suggested), a missing option or value, and a wrong value or device.
    """

    def reject(event: events.ParseErrorEvent) -> None:
        if (unknown := _unknown_option(event)) is not None:
            known = {"--help", *_option_names(options)}
            raise ConfigError(f"there is no option {unknown}; {did_you_mean(unknown, known)}")
        if (message := _message(event)) is not None:
            raise ConfigError(f"{message}; see legenda {command} --help")

    with events.on_parse_error(reject):
        found = tyro.cli(options, args=list(arguments), prog=f"legenda {command}", config=config)
    if isinstance(found, ComputeOptions):
        found.resolve()
    return found


def _unknown_option(event: events.ParseErrorEvent) -> str | None:
    """Return the first option that does not exist."""
    match event:
        case events.UnrecognizedArgs(tokens=tokens) | events.MissingArgs(unrecognized_tokens=tokens):
            unknown = (token.split("=")[0].replace("_", "-") for token in tokens if token.startswith("--"))
            return next(unknown, None)
    return None


def _message(event: events.ParseErrorEvent) -> str | None:
    """Return what is wrong, or None for an event that no command can cause, which tyro reports itself."""
    match event:
        case events.UnrecognizedArgs(tokens=tokens):
            return f"unrecognized options: {' '.join(tokens)}"
        case events.MissingArgs(missing_arguments=missing):
            return f"missing {', '.join(_name(found.arg) for found in missing)}"
        case events.InvalidChoice(argument=argument, value=value, choices=choices):
            return f"{_name(argument)} must be one of {', '.join(map(repr, choices))}, not {value!r}"
        case events.BadValue(argument=argument):
            return f"missing value for {_name(argument)} {argument.lowered.metavar}"
        case events.InstantiationFailure(argument=None, message=message):
            return message
        case events.InstantiationFailure(argument=argument, message=message):
            return f"{_name(argument)}: {message}"
    return None


def _name(argument: Any) -> str:
    """Return the name of an option, or the metavar of a positional argument."""
    return argument.lowered.name_or_flags[0] if not argument.is_positional() else str(argument.lowered.metavar)


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
