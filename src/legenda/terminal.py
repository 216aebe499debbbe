"""Text on terminals: characters that a terminal obeys or that change the order of others are shown as escapes."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tabs and line feeds, separators, bidirectional formatting, and bytes of file names that are
not UTF-8."""


def escape_controls(text: object) -> str:
    """Return a text with each such character as an escape of four hex digits, which JSON has too."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", str(text))


class SafeStream:
    """A text stream that escapes what is written to it, also where its encoding lacks a character."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text and return its length."""
        encoding = self.stream.encoding or "utf-8"
        self.stream.write(escape_controls(text).encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    @property
    def rich_proxied_file(self) -> Any:
        """The stream itself, to which consoles of rich write colors."""
        return unguarded(self.stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def unguarded(stream: Any) -> Any:
    """Return the stream behind SafeStream and behind the redirections of rich."""
    return getattr(stream, "rich_proxied_file", stream)


@contextmanager
def safe_stdout() -> Iterator[None]:
    """Let the standard output be a SafeStream."""
    before = sys.stdout
    sys.stdout = SafeStream(before)
    try:
        yield
    finally:
        sys.stdout = before
