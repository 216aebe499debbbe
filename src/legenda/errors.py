"""The one exception for mistakes a user can mend, and how its sentence names what was meant."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake of the caller that one sentence explains: it names the file, option or key, and the remedy.

    The command line prints the sentence and leaves with exit code 2; a library user sees an ordinary exception.
    """


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a sentence that names the nearest known word, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else f"choose from {', '.join(known)}"
