"""The listing of a large job: a file with one image name a line, and an index with the offset of each shard in it.

Memory stays within a few megabytes for any number of images.
"""

import hashlib
import heapq
import os
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from legenda.errors import DataError
from legenda.extractors.sources import reject_url

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


def write_names(names: Iterable[str], path: Path) -> None:
    """Write names in their order, one a line; raise DataError for a name that holds a line break."""
    _write(map(_line, names), path)


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


def names_of_shard(listing: Path, index: Path, shard: int) -> list[str]:
    """Return the names of a shard, in the order of the listing."""
    start, end = np.fromfile(index, _OFFSET, count=2, offset=shard * _OFFSET.itemsize).tolist()
    with listing.open("rb") as file:
        file.seek(start)
        lines = file.read(end - start).split(b"\n")
    return [os.fsdecode(name) for line in lines if (name := line.strip(b"\r"))]
