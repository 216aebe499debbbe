"""What is wrong with a command line, from the events of tyro's parser."""

from typing import Any

from tyro import _errors as events  # the only structured form of tyro's errors; pyproject.toml bounds its version


def unknown_option(event: events.ParseErrorEvent) -> str | None:
    """Return the first option that does not exist."""
    match event:
        case events.UnrecognizedArgs(tokens=tokens) | events.MissingArgs(unrecognized_tokens=tokens):
            unknown = (token.split("=")[0].replace("_", "-") for token in tokens if token.startswith("--"))
            return next(unknown, None)
    return None


def describe_error(event: events.ParseErrorEvent) -> str | None:
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
