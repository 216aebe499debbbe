"""The listing of a large job: a file with one image name a line, and an index with the offset of each shard in it.

Memory stays within a few megabytes for any number of images.
"""

import hashlib
import heapq
import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from legenda.errors import ConfigError, DataError
from legenda.extractors.images import Medium, is_image_name, iterate_images, require_images

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_SORT_SIZE = 100_000
"""Names that are sorted in memory at once."""
_MERGE_SIZE = 64
"""Sorted files that are open at once."""
_OFFSET = np.dtype("<u8")


@dataclass(frozen=True)
class Listing:
    """The number of names in a listing, and their SHA-256."""

    images: int
    sha256: str


def is_url(name: str) -> bool:
    """Return whether a name is a URL, to be fetched, instead of a path."""
    return _URL.match(name) is not None


def write_sorted(names: Iterable[str], path: Path, scratch: Path) -> None:
    """Write the distinct names, one a line, in the order of their bytes; `scratch` is a folder for temporary files.

    Raise DataError for a name that holds a line break.
    """
    with TemporaryDirectory(dir=scratch, prefix=".sorting-") as folder:
        lines = map(_line, names)
        runs: deque[Path] = deque()
        while chunk := list(islice(lines, _SORT_SIZE)):
            chunk.sort()
            runs.append(_write(chunk, Path(folder, f"{len(runs)}")))
        count = len(runs)
        while len(runs) > _MERGE_SIZE:
            runs.append(_merge([runs.popleft() for _ in range(_MERGE_SIZE)], Path(folder, f"{count}")))
            count += 1
        _merge(list(runs), path)


def _line(name: str) -> bytes:
    if "\n" in name or "\r" in name:
        raise DataError(f"the name {name!r} holds a line break, which a listing cannot hold; rename that image")
    return os.fsencode(name) + b"\n"


def _write(lines: Iterable[bytes], path: Path) -> Path:
    with path.open("wb") as file:
        file.writelines(lines)
    return path


def _merge(runs: Sequence[Path], path: Path) -> Path:
    """Merge sorted files into one without duplicates, and delete them."""
    files = [run.open("rb") for run in runs]
    try:
        _write((line for line, _ in groupby(heapq.merge(*files))), path)
    finally:
        for file, run in zip(files, runs, strict=True):
            file.close()
            run.unlink()
    return path


def index_listing(path: Path, index: Path, shard_size: int, *, allow_urls: bool) -> Listing:
    """Count the names of a listing, without empty lines, and write the byte offset of each shard of `shard_size` names.

    The index holds a little-endian integer of 8 bytes for each shard and for the end of the listing. Raise DataError
    when the listing cannot be read or is empty, and ConfigError for a URL unless URLs are allowed.
    """
    count, offset, digest = 0, 0, hashlib.sha256()
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); name a file with one image a line") from error
    with file, index.open("wb") as offsets:
        for line in file:
            name = line.strip(b"\r\n")
            if name:
                if b"://" in name and not allow_urls:
                    reject_url(os.fsdecode(name))
                if count % shard_size == 0:
                    offsets.write(offset.to_bytes(8, "little"))
                count += 1
                digest.update(name + b"\n")
            offset += len(line)
        offsets.write(offset.to_bytes(8, "little"))
    if not count:
        raise DataError(f"{path} names no image; write one a line")
    return Listing(count, digest.hexdigest())


def reject_url(name: str) -> None:
    """Raise ConfigError when the name is a URL."""
    if is_url(name):
        raise ConfigError(f"{name} is a URL, and URLs are not fetched without --allow-urls; add it or name a file")


def names_of_shard(listing: Path, index: Path, shard: int) -> list[str]:
    """Return the names of a shard, in the order of the listing."""
    start, end = np.fromfile(index, _OFFSET, count=2, offset=shard * _OFFSET.itemsize).tolist()
    with listing.open("rb") as file:
        file.seek(start)
        lines = file.read(end - start).split(b"\n")
    return [os.fsdecode(name) for line in lines if (name := line.strip(b"\r"))]


def list_images(sources: Sequence[str], *, allow_urls: bool, medium: Medium = "image") -> Iterator[str]:
    """Yield the images of files, folders, patterns, URLs and "-" (the lines of the standard input).

    The images are those of `legenda.extractors.find_images`, in no order, possibly repeated. A URL is an image where it
    is of http or https or has the suffix of one; any other URL is a folder of an object store. Raise DataError for a
    source that does not exist or holds no image, and ConfigError for a URL unless URLs are allowed.
    """
    for source in _with_standard_input(sources):
        try:
            yield from _list_source(source, medium, allow_urls=allow_urls)
        except OSError as error:
            raise DataError(
                f"{source} cannot be listed ({error.strerror or error}); check the name and the permission to read it"
            ) from error


def _with_standard_input(sources: Iterable[str]) -> Iterator[str]:
    for source in sources:
        if source != "-":
            yield source
            continue
        lines = filter(None, (line.strip("\r\n") for line in sys.stdin))
        first = next(lines, None)
        if first is None:
            raise DataError("the standard input names no image; write one file, folder or pattern a line")
        yield from chain([first], lines)


def _list_source(source: str, medium: Medium, *, allow_urls: bool) -> Iterator[str]:
    if not allow_urls:
        reject_url(source)
    if not is_url(source):
        yield from iterate_images(source, medium)
    elif source.startswith(("http://", "https://")) or is_image_name(source.split("?")[0], medium):
        yield source
    else:
        yield from require_images(source, _in_store(source, medium), medium)


def _in_store(url: str, medium: Medium) -> Iterator[str]:
    """Yield the images of a folder tree in an object store; the names of one folder are held in memory."""
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(url)
        for folder, _, files in system.walk(root, on_error="raise"):
            for name in files:
                if is_image_name(name, medium):
                    yield system.unstrip_protocol(f"{folder}/{name}")
    except Exception as error:  # fsspec's stores have no common base class of errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{url} cannot be listed ({reason}); check the address and your credentials") from error
