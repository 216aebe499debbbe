"""The option --plugin of every command, which runs a Python file that registers models, data and other parts."""

from collections.abc import Sequence

from legenda.errors import ConfigError
from legenda.registry import load_plugin


def load_plugins(arguments: Sequence[str]) -> list[str]:
    """Run the files of every --plugin, and return the other arguments."""
    rest: list[str] = []
    texts = iter(arguments)
    for text in texts:
        option, equals, value = text.partition("=")
        if option != "--plugin":
            rest.append(text)
            continue
        file = value if equals else next(texts, "")
        if not file or file.startswith("--"):
            raise ConfigError("missing value for --plugin; name a Python file")
        load_plugin(file)
    return rest
