"""Which pictures a large job captions: a file of one name a line, of any length, and where in it each shard begins.

Nothing here holds more than a few megabytes, whether a thousand or a billion pictures are named.
"""

import glob
import hashlib
import heapq
import os
import re
import struct
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from legenda.errors import UserError
from legenda.extractors.images import SUFFIXES

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_HELD = 100_000
"""Names that are sorted in memory at once."""
_MERGED = 64
"""Sorted files that are open at once."""
_PLACE = struct.Struct("<Q")


@dataclass(frozen=True)
class Listing:
    """How many names a listing has, and the SHA-256 of them all."""

    pictures: int
    sha256: str


def is_url(name: str) -> bool:
    """Whether a name is fetched instead of read from a disk."""
    return _URL.match(name) is not None


def write_sorted(names: Iterable[str], path: Path, scratch: Path) -> None:
    """Writes the names one a line, in the order of their bytes, none twice; `scratch` is a folder with as much room.

    Raises UserError for a name that holds a line break.
    """
    with TemporaryDirectory(dir=scratch, prefix=".sorting-") as folder:
        source = map(_line, names)
        pieces: deque[Path] = deque()
        while held := list(islice(source, _HELD)):
            held.sort()
            pieces.append(_write(held, Path(folder, f"{len(pieces)}")))
        made = len(pieces)
        while len(pieces) > _MERGED:
            pieces.append(_merge([pieces.popleft() for _ in range(_MERGED)], Path(folder, f"{made}")))
            made += 1
        _merge(list(pieces), path)


def _line(name: str) -> bytes:
    if "\n" in name or "\r" in name:
        raise UserError(f"the name {name!r} holds a line break, which a listing cannot hold; rename that picture")
    return os.fsencode(name) + b"\n"


def _write(lines: Iterable[bytes], path: Path) -> Path:
    with path.open("wb") as file:
        file.writelines(lines)
    return path


def _merge(pieces: Sequence[Path], path: Path) -> Path:
    """One sorted file of several, which are removed."""
    files = [piece.open("rb") for piece in pieces]
    try:
        _write(_unlike(heapq.merge(*files)), path)
    finally:
        for file, piece in zip(files, pieces, strict=True):
            file.close()
            piece.unlink()
    return path


def _unlike(lines: Iterable[bytes]) -> Iterator[bytes]:
    before = None
    for line in lines:
        if line != before:
            yield line
        before = line


def index_listing(path: Path, index: Path, shard_size: int, *, allow_urls: bool) -> Listing:
    """Counts the names of a listing, empty lines aside, and writes where every shard of `shard_size` names begins.

    The index holds a number of 8 bytes, least byte first, for each shard and for the listing's end.
    Raises UserError when the listing cannot be read or names nothing, and for a URL where they are not allowed.
    """
    pictures, place, digest = 0, 0, hashlib.sha256()
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); name a file with one picture a line") from error
    with file, index.open("wb") as places:
        for line in file:
            name = line.strip(b"\r\n")
            if name:
                if b"://" in name and not allow_urls:
                    refuse_url(os.fsdecode(name))
                if pictures % shard_size == 0:
                    places.write(_PLACE.pack(place))
                pictures += 1
                digest.update(name + b"\n")
            place += len(line)
        places.write(_PLACE.pack(place))
    if not pictures:
        raise UserError(f"{path} names no picture; write one a line")
    return Listing(pictures, digest.hexdigest())


def refuse_url(name: str) -> None:
    """Raises UserError when the name is a URL."""
    if is_url(name):
        raise UserError(f"{name} is a URL, and nothing is fetched unless --allow-urls says so")


def names_of_shard(listing: Path, index: Path, shard: int) -> list[str]:
    """The names that belong to a shard, in the listing's order."""
    with index.open("rb") as places:
        places.seek(shard * _PLACE.size)
        (first,), (last,) = _PLACE.unpack(places.read(_PLACE.size)), _PLACE.unpack(places.read(_PLACE.size))
    with listing.open("rb") as file:
        file.seek(first)
        lines = file.read(last - first).split(b"\n")
    return [os.fsdecode(name) for line in lines if (name := line.strip(b"\r"))]


def list_images(given: Sequence[str], *, allow_urls: bool) -> Iterator[str]:
    """The pictures behind files, folders, patterns, URLs and "-" (the lines of the standard input), as they are found.

    As `legenda.extractors.find_images` chooses, but in no order, and one may come twice. A URL is a picture where
    it is one of http or https, or ends as pictures do; any other names a folder of an object store.
    Raises UserError for what does not exist or holds no picture, and for a URL where they are not allowed.
    """
    for entry in given:
        if entry == "-":
            yield from _of_lines(sys.stdin, allow_urls=allow_urls)
        else:
            yield from _behind(entry, allow_urls=allow_urls)


def _of_lines(lines: Iterable[str], *, allow_urls: bool) -> Iterator[str]:
    named = False
    for line in lines:
        if entry := line.strip("\r\n"):
            named = True
            yield from _behind(entry, allow_urls=allow_urls)
    if not named:
        raise UserError("the standard input names no picture; write one file, folder or pattern a line")


def _behind(entry: str, *, allow_urls: bool) -> Iterator[str]:
    """The pictures behind one name; UserError where the system lets nobody look."""
    try:
        yield from _found_behind(entry, allow_urls=allow_urls)
    except OSError as error:
        raise UserError(
            f"{entry} cannot be listed ({error.strerror or error}); check the name, or give leave to read it"
        ) from error


def _found_behind(entry: str, *, allow_urls: bool) -> Iterator[str]:
    if is_url(entry):
        if not allow_urls:
            refuse_url(entry)
        if entry.startswith(("http://", "https://")) or _named_as_picture(entry):
            yield entry
            return
        found = _in_store(entry)
    elif Path(entry).is_file():
        yield entry
        return
    elif Path(entry).is_dir():
        found = _below(entry)
    elif glob.has_magic(entry):
        names = glob.iglob(entry, recursive=True)  # noqa: PTH207 - takes absolute patterns too
        found = (name for name in names if _named_as_picture(name) and Path(name).is_file())
    else:
        raise UserError(f"{entry} does not exist; name a picture, a folder of pictures or a pattern such as '*.jpg'")
    first = next(found, None)
    if first is None:
        raise UserError(f"{entry} holds no picture; name one with pictures of the kinds {', '.join(sorted(SUFFIXES))}")
    yield first
    yield from found


def _below(folder: str) -> Iterator[str]:
    """Pictures in a folder and all below it, without holding the names of one folder together."""
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif _named_as_picture(entry.name) and entry.is_file():
                        yield entry.path
        except OSError as error:
            raise UserError(f"{here} cannot be listed ({error.strerror}); give leave to read it") from error


def _in_store(url: str) -> Iterator[str]:
    """Pictures in a folder of an object store; the names of one of its folders are held together."""
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(url)
        for folder, _, files in system.walk(root, on_error="raise"):
            for name in files:
                if _named_as_picture(name):
                    yield system.unstrip_protocol(f"{folder}/{name}")
    except Exception as error:  # every store fails in its own way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{url} cannot be listed ({reason}); check the address and your credentials") from error


def _named_as_picture(name: str) -> bool:
    end = Path(name.split("?")[0] if is_url(name) else name)
    return end.suffix.lower() in SUFFIXES and not end.name.startswith(".")
