"""The option --recipe-file of every command, which registers models, data and other parts of a Python file."""

from collections.abc import Sequence

from legenda.errors import ConfigError
from legenda.plugins import run_file


def run_recipe_file(arguments: Sequence[str]) -> list[str]:
    """Run the file of --recipe-file, if it is given, and return the other arguments."""
    arguments = list(arguments)
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option not in ("--recipe-file", "--recipe_file"):
            continue
        rest = arguments[index + 1 :]
        if not equals and not rest:
            raise ConfigError("missing value for --recipe-file; name a Python file")
        run_file(value if equals else rest[0])
        return [*arguments[:index], *(rest if equals else rest[1:])]
    return arguments
