"""The listing of a large job: a file with one image name a line, and an index with the offset of each shard in it.

Memory stays within a few megabytes for any number of images.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import groupby, islice
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from legenda.data.features.packed import MANIFEST
from legenda.errors import ConfigError, DataError, LegendaError
from legenda.extractors.sources import Medium, is_url, list_images, reject_url
from legenda.io import atomic_write, get_field, read_json, verified, write_json

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


Kind = Literal["captions", "features"]
"""What a job makes of images."""
LISTING = "names.txt"
INDEX = "index.bin"


@dataclass(frozen=True)
class Job:
    """A folder of shards of captions or features; relative names in its listing are relative to `base`."""

    folder: Path
    listing: Path
    base: Path
    images: int
    shards: int
    kind: Kind = "captions"

    def shard(self, number: int) -> Path:
        """Return the file with the lines of a shard."""
        return self.folder / f"{self.kind}-{number:08d}.jsonl"

    def names(self, number: int) -> list[str]:
        """Return the names of the images of a shard."""
        index = self.folder / INDEX
        return verified(lambda: names_of_shard(self.listing, index, number), index, f"remove {self.folder}")

    def lines(self, number: int) -> list[dict[str, Any]]:
        """Return the lines of a complete shard; raise DataError for a damaged one."""

        def read() -> list[dict[str, Any]]:
            with path.open(encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            for line in lines:
                if not isinstance(line["image"], str) or not isinstance(line.get("error", ""), str):
                    raise ValueError("a line has no name of an image, or an error that is no text")
            return lines

        path = self.shard(number)
        return verified(read, path, "delete it and call the same command again")

    def clean(self) -> None:
        """Delete temporary files of killed workers."""
        for path in self.folder.glob(f".{self.kind}-*"):
            path.unlink(missing_ok=True)
        for path in self.folder.glob(".sorting-*"):
            rmtree(path, ignore_errors=True)


def open_job(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    kind: Kind,
    shard_size: int,
    sources: Sequence[str] = (),
    names: Sequence[str] | None = None,
    medium: Medium = "image",
    allow_urls: bool = False,
) -> Job:
    """Start a job in a folder, or resume it.

    settings: what the output depends on, JSON values by name. sources: files, folders, patterns, URLs and "-", whose
    images, or videos by the `medium`, are listed, sorted, once, when the job starts; or one "@names.txt", a listing
    with one image a line, which is not copied or sorted. names: the images themselves, in place of sources.
    Raise ConfigError when the folder holds complete shards of other images, settings or shards.
    """
    folder, cwd = folder.resolve(), Path.cwd()
    user_listing = _user_listing(sources)
    for source in () if allow_urls else (*sources, *(names or ())):
        reject_url(source)
    resolved = [source if source == "-" or is_url(source) else _absolute(source, cwd) for source in sources]
    expected = {"kind": kind, "sources": resolved, "shard_size": shard_size, **settings}
    manifest: dict[str, Any] | None = None
    if (folder / MANIFEST).exists():
        manifest = read_json(folder / MANIFEST, f"remove {folder}")
        get_field(manifest, "kind", str, str(folder / MANIFEST), f"remove {folder}")
    has_shards = next(folder.glob(f"{kind}-*.jsonl"), None) is not None
    if manifest is None and has_shards:
        raise ConfigError(f"{folder} holds shards without their {MANIFEST}; restore it or name another output")
    if manifest is not None and not has_shards and manifest.get("kind") == kind:
        manifest = None  # it has not written anything that another job could mistake for its own
    if manifest is not None:
        _check_manifest(folder, manifest, expected)
    listing = folder / LISTING if user_listing is None else cwd / user_listing
    # A folder is listed once; what is read in every call must not have changed.
    if manifest is None or user_listing is not None or names is not None or "-" in sources:
        with _remove_if_empty(folder), ExitStack() as files:
            index = files.enter_context(atomic_write(folder / INDEX))
            listed = listing
            if user_listing is None:
                listed = files.enter_context(atomic_write(listing))
                if names is None:
                    write_sorted(list_images(sources, medium, allow_urls=allow_urls), listed, folder)
                else:
                    write_names(names, listed)
            counts = asdict(index_listing(listed, index, shard_size, allow_urls=allow_urls))
            if manifest is not None:
                _check_manifest(folder, manifest, counts)
        if manifest is None:
            manifest = {**expected, "base": str(cwd), **counts}
            write_json(folder / MANIFEST, manifest)
    where, hint = str(folder / MANIFEST), f"remove {folder}"
    images, base = get_field(manifest, "images", int, where, hint), get_field(manifest, "base", str, where, hint)
    return Job(folder, listing, Path(base), images, -(-images // shard_size), kind)


@contextmanager
def _remove_if_empty(folder: Path) -> Iterator[None]:
    """Where the block fails, remove a folder that it has made."""
    try:
        yield
    except LegendaError:
        with suppress(OSError):
            folder.rmdir()
        raise


def digest_files(paths: Sequence[Path]) -> str:
    """Return a digest of the sizes and modification times of files, so that changed ones are noticed."""
    digest = hashlib.sha256()
    for path in paths:
        stat = path.stat() if path.exists() else None
        digest.update(f"{stat and (stat.st_size, stat.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


def _user_listing(sources: Sequence[str]) -> Path | None:
    listings = [source for source in sources if source.startswith("@")]
    if not listings:
        return None
    if len(sources) > 1:
        raise ConfigError(f"{listings[0]} is a listing and must be the only source; write all names into one file")
    return Path(listings[0][1:])


def _absolute(source: str, cwd: Path) -> str:
    prefix = "@" if source.startswith("@") else ""
    return prefix + os.path.normpath(cwd / source.removeprefix("@"))


def _check_manifest(folder: Path, manifest: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for name, value in expected.items():
        if manifest.get(name) != value:
            raise ConfigError(
                f"{folder} holds {manifest.get('kind')} made with {name} {manifest.get(name)}, not {value}; remove it "
                "or name another output"
            )
