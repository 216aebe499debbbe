"""What a user may name as pictures: files, folders, patterns, a list on the standard input, and, if allowed, URLs."""

import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from legenda.errors import UserError

_URL = ("http://", "https://")
_LARGEST = 64 << 20
"""Bytes of a picture that is fetched."""
_PATIENCE = 20
"""Seconds that a server may take to answer."""


@contextmanager
def open_image_sources(
    given: Sequence[str], broken: list[str], *, allow_urls: bool
) -> Iterator[list[tuple[str, Path]]]:
    """Yields what the pictures are called and where they lie; those that were fetched are gone at the end.

    "-" stands for the lines of the standard input. Why a URL cannot be fetched is added to `broken`.
    Raises UserError for what does not exist, and for a URL where they are not allowed.
    """
    from legenda.extractors import find_images

    named = [name for entry in given for name in (_lines() if entry == "-" else [entry])]
    urls = [name for name in named if name.startswith(_URL)]
    if urls and not allow_urls:
        raise UserError(f"{urls[0]} is a URL, and nothing is fetched unless --allow-urls says so")
    if given and not named:
        raise UserError("the standard input names no picture; write one file, folder or pattern a line")
    with TemporaryDirectory(prefix="legenda-") as folder:
        sources: list[tuple[str, Path]] = []
        if not urls:
            sources = [(str(path), path) for path in find_images(named)]
        else:
            for number, name in enumerate(named):
                if not name.startswith(_URL):
                    sources += [(str(path), path) for path in find_images([name])]
                    continue
                try:
                    sources.append((name, _fetch(name, Path(folder, str(number)))))
                except UserError as error:
                    broken.append(str(error))
        yield sources


def _lines() -> list[str]:
    return [line.strip("\r\n") for line in sys.stdin if line.strip()]


def _fetch(url: str, folder: Path) -> Path:
    """The file that a URL names, in a folder of its own."""
    folder.mkdir()
    path = folder / (url.split("?")[0].rstrip("/").rpartition("/")[2] or "picture")
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE) as answer:
            content = answer.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        raise UserError(f"{url} cannot be fetched ({error}); download the picture and name the file") from error
    if len(content) > _LARGEST:
        raise UserError(f"{url} is larger than {_LARGEST >> 20} MiB; download it and scale it down")
    path.write_bytes(content)
    return path
