"""Select entries of a list by a text or a pattern."""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase


def matching(text: str, names: Iterable[str], describe: Callable[[str], str]) -> list[str]:
    """Return the names that match the pattern `text`, or that hold it in the name or the description, in any case."""
    wanted = text.lower()
    return [
        name for name in names if fnmatchcase(name.lower(), wanted) or wanted in f"{name}\n{describe(name)}".lower()
    ]
