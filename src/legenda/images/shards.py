"""A job: the listing of its images, and its shards, whose files any worker writes atomically, once, in any order.

The listing is a file with one image name a line, and an index with the offset of each shard in it. Memory stays within
a few megabytes for any number of images.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np

from legenda.config import Integer, conform, get_field
from legenda.errors import ConfigError, DataError, LegendaError
from legenda.images.files import Medium, is_url, list_images, order_by_size, reject_url
from legenda.io import atomic_write, read_json, verified, write_json

_SORT_SIZE = 100_000
"""Names that are sorted in memory at once; a hundred million make a thousand files, all of which are then open."""
_OFFSET = np.dtype("<u8")


def write_sorted(names: Iterable[str], path: Path) -> None:
    """Write the distinct names, one a line, in the order of their bytes, by temporary files in the folder of `path`.

    Raise DataError for a name that holds a line break.
    """
    with TemporaryDirectory(dir=path.parent, prefix=".sorting-") as folder:
        lines = map(_line, names)
        runs: list[Path] = []
        while chunk := list(islice(lines, _SORT_SIZE)):
            runs.append(Path(folder, f"{len(runs)}"))
            _write(sorted(chunk), runs[-1])
        with ExitStack() as files:
            merged = heapq.merge(*(files.enter_context(run.open("rb")) for run in runs))
            _write((line for line, _ in groupby(merged)), path)


def _line(name: str) -> bytes:
    if "\n" in name or "\r" in name:
        raise DataError(f"the name {name!r} holds a line break, which a listing cannot hold; rename that image")
    return os.fsencode(name) + b"\n"


def _write(lines: Iterable[bytes], path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(lines)


def index_listing(path: Path, index: Path, shard_size: int, *, allow_urls: bool) -> dict[str, object]:
    """Write the byte offset of each shard of `shard_size` names of a listing, without its empty lines.

    Return the number of `images` and the `sha256` of their names. The index holds a little-endian integer of 8 bytes
    for each shard and for the end of the listing. Raise DataError when the listing cannot be read or is empty, and
    ConfigError for a URL unless URLs are allowed.
    """
    count, offset, digest = 0, 0, hashlib.sha256()
    file = verified(lambda: path.open("rb"), path, "name a file with one image a line")
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
    return {"images": count, "sha256": digest.hexdigest()}


def names_of_shard(listing: Path, index: Path, shard: int) -> list[str]:
    """Return the names of a shard, in the order of the listing."""
    start, end = np.fromfile(index, _OFFSET, count=2, offset=shard * _OFFSET.itemsize).tolist()
    with listing.open("rb") as file:
        file.seek(start)
        lines = file.read(end - start).split(b"\n")
    return [os.fsdecode(name) for line in lines if (name := line.strip(b"\r"))]


MANIFEST = "manifest.json"
"""The record of a folder of shards: its settings, and how many images and shards it has."""
_LISTING = "names.txt"
_INDEX = "index.bin"


@dataclass(frozen=True)
class Manifest:
    """The entries that the record of every job has; relative names of its images are relative to `base`."""

    kind: str
    base: str
    images: Integer
    shard_size: Integer


@dataclass(frozen=True)
class Job:
    """A folder of shards; relative names in its listing are relative to `base`.

    kind: what the shards hold, such as "captions" or "features"; their files begin with it.
    """

    folder: Path
    listing: Path
    base: Path
    images: int
    shards: int
    kind: str

    def shard(self, number: int) -> Path:
        """Return the file with the lines of a shard."""
        return self.folder / f"{self.kind}-{number:08d}.jsonl"

    def names(self, number: int) -> list[str]:
        """Return the names of the images of a shard."""
        index = self.folder / _INDEX
        return verified(lambda: names_of_shard(self.listing, index, number), index, f"remove {self.folder}")

    def lines(self, number: int) -> list[dict[str, Any]]:
        """Return the lines of a complete shard; raise DataError for a damaged one."""
        path, hint = self.shard(number), "delete it and call the same command again"
        lines = verified(lambda: [*map(json.loads, path.read_text(encoding="utf-8").splitlines())], path, hint)
        for line in lines:
            get_field(line, "image", str, path, hint)
            get_field({"error": "", **line}, "error", str, path, hint)
        return lines

    def clean(self) -> None:
        """Delete temporary files of killed workers."""
        for path in (*self.folder.glob(f".{self.kind}-*"), *self.folder.glob(".sorting-*")):
            rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def open_job(
    folder: Path,
    settings: Mapping[str, object],
    *,
    kind: str,
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
    where, hint = str(folder / MANIFEST), f"remove {folder}"
    listings = [source for source in sources if source.startswith("@")]
    if listings and len(sources) > 1:
        raise ConfigError(f"{listings[0]} is a listing and must be the only source; write all names into one file")
    for source in () if allow_urls else (*sources, *(names or ())):
        reject_url(source)
    resolved = [source if source == "-" or is_url(source) else _absolute(source, cwd) for source in sources]
    expected = {"kind": kind, "sources": resolved, "shard_size": shard_size, **settings}
    manifest: dict[str, object] | None = read_json(where, hint) if (folder / MANIFEST).exists() else None
    has_shards = next(folder.glob(f"{kind}-*.jsonl"), None) is not None
    if manifest is None and has_shards:
        raise ConfigError(f"{folder} holds shards without their {MANIFEST}; restore it or name another output")
    others = (path.name for path in (folder.iterdir() if folder.is_dir() else ()) if not path.name.startswith("."))
    if manifest is None and (other := next((n for n in others if n not in (MANIFEST, _LISTING, _INDEX)), None)):
        raise ConfigError(f"{folder} holds {other}, which is of no job; name another output")
    if manifest is not None:
        if conform(manifest, Manifest, where, hint).kind == kind and not has_shards:
            manifest = None  # it has not written anything that another job could mistake for its own
        else:
            _check_manifest(folder, manifest, expected)
    listing = cwd / listings[0][1:] if listings else folder / _LISTING
    # A folder is listed once; what is read in every call must not have changed.
    if manifest is None or listings or names is not None or "-" in sources:
        try:
            with ExitStack() as files:
                index = files.enter_context(atomic_write(folder / _INDEX))
                listed = listing
                if not listings:
                    listed = files.enter_context(atomic_write(listing))
                    if names is None:
                        write_sorted(list_images(sources, medium, allow_urls=allow_urls), listed)
                    else:
                        _write(map(_line, names), listed)
                counts = index_listing(listed, index, shard_size, allow_urls=allow_urls)
                if manifest is not None:
                    _check_manifest(folder, manifest, counts)
        except LegendaError:
            with suppress(OSError):  # where it is not empty
                folder.rmdir()
            raise
        if manifest is None:
            manifest = {**expected, "base": str(cwd), **counts}
            write_json(folder / MANIFEST, manifest)
    started = conform(manifest, Manifest, where, hint)
    return Job(folder, listing, Path(started.base), started.images, -(-started.images // shard_size), kind)


def digest_files(paths: Sequence[Path]) -> str:
    """Return a digest of the sizes and modification times of files, so that changed ones are noticed."""
    digest = hashlib.sha256()
    for path in paths:
        stat = path.stat() if path.exists() else None
        digest.update(f"{stat and (stat.st_size, stat.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


def _absolute(source: str, cwd: Path) -> str:
    prefix = "@" if source.startswith("@") else ""
    return prefix + os.path.normpath(cwd / source.removeprefix("@"))


def _check_manifest(folder: Path, manifest: Mapping[str, object], expected: Mapping[str, object]) -> None:
    for name, value in expected.items():
        if manifest.get(name) != value:
            raise ConfigError(
                f"{folder} holds {manifest.get('kind')} made with {name} {manifest.get(name)}, not {value}; remove it "
                "or name another output"
            )


_MAX_ATTEMPTS = 2
"""Times that a shard, a batch or an image may end its worker before what ends it is searched for in smaller parts."""


@dataclass(frozen=True)
class ImageResult:
    """The result of an image in a shard: a line, with an "error" where it failed, and what the task saves of it."""

    line: Mapping[str, object]
    content: Any = None


def failure(name: str, error: str) -> ImageResult:
    """Return the result of an image that failed."""
    return ImageResult({"image": name, "error": error})


class ImageTask(Protocol):
    """The work that is done for images."""

    @property
    def batch_size(self) -> int:
        """Return how many are processed at once."""
        ...

    def process(self, names: Sequence[str], folder: Path) -> Iterable[ImageResult]:
        """Yield the result of each image, given by URL or path relative to the folder, in order and in batches."""
        ...

    def save(self, results: Sequence[ImageResult], path: Path) -> None:
        """Write what the lines do not hold to `path`."""
        ...


@dataclass(frozen=True)
class JobStats:
    """Sums over complete shards.

    failed: images without a result. cached: images of shards that an earlier call completed. seconds: wall time.
    """

    shards: int = 0
    images: int = 0
    failed: int = 0
    cached: int = 0
    seconds: float = 0.0


def process_shard(job: Job, task: ImageTask, shard: int, advance: Callable[[], object] = lambda: None) -> JobStats:
    """Process the images of a shard and write its files, unless they exist; `advance` is called after each image.

    Batches are made of images in the order of their sizes. A shard whose worker was killed is repeated from its first
    image, in the same batches, so that its files are the same; an image at which two workers were killed while it was
    alone gets an error. An interrupt of this process is no such kill.
    """
    path = job.shard(shard)
    if path.exists():
        return _read_result(job, shard, cached=True)
    names = job.names(shard)
    order = order_by_size(names, job.base)
    ordered = [names[position] for position in order]
    attempts = _AttemptLog(job.folder / f".{path.stem}.attempts")
    results: dict[int, ImageResult] = {}
    try:
        if attempts.count < _MAX_ATTEMPTS:
            processed = task.process(ordered, job.base)
        else:
            processed = _process_carefully(task, ordered, job.base, attempts)
        for position, result in zip(order, processed, strict=True):
            results[position] = result
            advance()
    except KeyboardInterrupt:
        attempts.forget()
        raise
    in_order = [results[position] for position in range(len(names))]
    with atomic_write(path, sync=True) as partial:
        task.save(in_order, path.with_suffix(".safetensors"))
        partial.write_text("".join(json.dumps(result.line) + "\n" for result in in_order), encoding="utf-8")
    attempts.path.unlink(missing_ok=True)
    return _read_result(job, shard, cached=False)


def process_shards(
    job: Job,
    run: Callable[[Callable[[], object]], Iterable[JobStats]],
    progress: Callable[[int, int], object] = lambda *_: None,
) -> JobStats:
    """Process all shards of a job, unless earlier calls have completed them, and return the sums over all shards.

    run: yields the result of each shard, and may call what it gets after each image. progress: gets the images done and
    in total. Raise DataError where shards are missing at the end.
    """
    start, totals, done = time.monotonic(), Counter[str](), 0

    def advance(images: int = 1) -> None:
        nonlocal done
        done += images
        progress(done, job.images)

    complete = all(job.shard(number).exists() for number in range(job.shards))
    stored = (_read_result(job, number, cached=True) for number in range(job.shards))
    for result in stored if complete else run(advance):
        totals.update(vars(result))
        advance(totals["images"] - done)
    stats = replace(JobStats(**totals), seconds=time.monotonic() - start)
    if (stats.shards, stats.images) != (job.shards, job.images):
        raise DataError(
            f"{job.folder} holds {stats.images} of {job.images} images in {stats.shards} of {job.shards} shards; call "
            "the same command again, or name another folder if the files were changed"
        )
    job.clean()
    return stats


def process_here(job: Job, task: ImageTask, progress: Callable[[int, int], object] = lambda *_: None) -> JobStats:
    """Process all shards of a job in this process; see `process_shards`."""

    def run(advance: Callable[[], object]) -> Iterator[JobStats]:
        return (process_shard(job, task, number, advance) for number in range(job.shards))

    return process_shards(job, run, progress)


def _read_result(job: Job, shard: int, *, cached: bool) -> JobStats:
    """Return the counts of a complete shard."""
    lines = job.lines(shard)
    return JobStats(1, len(lines), sum("error" in line for line in lines), len(lines) if cached else 0)


class _AttemptLog:
    """The attempts at a shard, and the step at which each of them ended.

    The file has a line "start" for each attempt and, where a shard is processed carefully, a line before each step.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before = path.read_text(encoding="utf-8") if path.exists() else ""
        attempts = self._before.split("start\n")[1:]
        self.count = len(attempts)
        self._ends = Counter(attempt.splitlines()[-1] for attempt in attempts if attempt)
        self._append("start")

    def begin(self, step: str) -> bool:
        """Note that a step begins and return True, or return False where it has ended _MAX_ATTEMPTS workers."""
        if self._ends[step] >= _MAX_ATTEMPTS:
            return False
        self._append(step)
        return True

    def forget(self) -> None:
        """Remove this attempt, which no image has ended."""
        self.path.write_text(self._before, encoding="utf-8")

    def _append(self, line: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def _process_carefully(
    task: ImageTask, names: Sequence[str], folder: Path, attempts: _AttemptLog
) -> Iterator[ImageResult]:
    """Yield the results of all images; of a batch that ends its worker, first try each image alone.

    The batch is then repeated without those that end their worker, or, where it still ends it, left at single images.
    """
    for start in range(0, len(names), task.batch_size):
        batch = names[start : start + task.batch_size]
        if attempts.begin(f"batch {start}"):
            yield from task.process(batch, folder)
            continue
        alone: list[ImageResult | None] = []
        for position, name in enumerate(batch, start):
            alone += task.process([name], folder) if attempts.begin(f"image {position}") else [None]
        harmless = [name for name, result in zip(batch, alone, strict=True) if result is not None]
        together = attempts.begin(f"rest of {start}")
        results = iter(task.process(harmless, folder) if together else filter(None, alone))
        for name, result in zip(batch, alone, strict=True):
            deadly = result is None
            yield (
                failure(name, f"{name} has killed its worker more than once; leave it out") if deadly else next(results)
            )
