"""Process one shard of a job: its files are written atomically, once, by any worker, in any order."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any, Protocol, TextIO

from legenda.errors import DataError, LegendaError
from legenda.extractors.base import ImageRegions
from legenda.io import atomic_write
from legenda.jobs.job import INDEX, Job, ShardResult
from legenda.jobs.listing import is_url, names_of_shard

MAX_DOWNLOAD_BYTES = 64 << 20
MAX_DOWNLOAD_ATTEMPTS = 3
MAX_BATCHED_ATTEMPTS = 2
"""Attempts at a shard with whole batches; later attempts process single images, to find what kills a worker."""


@dataclass(frozen=True)
class ImageResult:
    """What a shard holds of an image: its line, with an "error" where it failed, and the regions of features."""

    image: str
    line: Mapping[str, Any]
    regions: ImageRegions | None = None


class ShardTask(Protocol):
    """What is made of images."""

    def process(self, files: Sequence[tuple[str, Path]]) -> Iterable[ImageResult]:
        """Return a result for each image, given by name and path."""
        ...

    def save(self, results: Iterator[ImageResult], path: Path) -> None:
        """Write what the lines do not hold to `path`; the lines are written as the results are taken, all of them."""
        ...


def process_shard(job: Job, shard: int, task: ShardTask, batch_size: int) -> ShardResult:
    """Process the images of a shard and write its files, unless they exist.

    A shard whose worker was killed is repeated from its first image. After `MAX_BATCHED_ATTEMPTS` its images are
    processed one at a time, and an image at which two workers were killed gets an error.
    """
    path = job.shard(shard)
    if path.exists():
        return _read_result(path, shard, cached=True)
    names = names_of_shard(job.listing, job.folder / INDEX, shard)
    attempts = _AttemptLog(job.folder / f".{path.stem}.attempts")
    if attempts.count < MAX_BATCHED_ATTEMPTS:
        batches = (names[start : start + batch_size] for start in range(0, len(names), batch_size))
        results = (result for batch in batches for result in _process_batch(job, batch, task))
    else:
        results = _process_singly(job, names, task, attempts)
    with atomic_write(path, sync=True) as partial, partial.open("w", encoding="utf-8") as lines:
        task.save(_write_lines(results, lines), path.with_suffix(".safetensors"))
    attempts.delete()
    return _read_result(path, shard, cached=False)


def _write_lines(results: Iterable[ImageResult], lines: TextIO) -> Iterator[ImageResult]:
    for result in results:
        lines.write(json.dumps(result.line) + "\n")
        yield result


def _read_result(path: Path, shard: int, *, cached: bool) -> ShardResult:
    with path.open(encoding="utf-8") as lines:
        failed = Counter("error" in json.loads(line) for line in lines)
    return ShardResult(shard, failed.total(), failed[True], cached)


class _AttemptLog:
    """The attempts at a shard, and the images at which attempts of single images ended.

    The file has a line "start" for each attempt and, before an image is processed singly, a line with its index.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        attempts = path.read_text(encoding="utf-8").split("start\n")[1:] if path.exists() else []
        self.count = len(attempts)
        last_items = Counter(int(attempt.split()[-1]) for attempt in attempts if attempt)
        self.failed_items = {index for index, times in last_items.items() if times > 1}
        self.append("start")

    def append(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def delete(self) -> None:
        self._path.unlink(missing_ok=True)


def _process_singly(job: Job, names: Sequence[str], task: ShardTask, attempts: _AttemptLog) -> Iterator[ImageResult]:
    for index, name in enumerate(names):
        if index in attempts.failed_items:
            yield failure(name, f"{name} has killed its worker more than once; check it or leave it out")
            continue
        attempts.append(str(index))
        yield from _process_batch(job, [name], task)


def _process_batch(job: Job, names: Sequence[str], task: ShardTask) -> Iterator[ImageResult]:
    """Yield one result for each name, in order."""
    paths: dict[str, Path] = {}
    results: dict[str, ImageResult] = {}
    with TemporaryDirectory(prefix="legenda-") as folder:
        for index, name in enumerate(names):
            try:
                paths[name] = _download(name, Path(folder, str(index))) if is_url(name) else job.base / name
            except LegendaError as error:
                results[name] = failure(name, str(error))
        results |= {result.image: result for result in task.process(list(paths.items()))}
    yield from (results[name] for name in names)


def failure(name: str, error: str) -> ImageResult:
    """Return the result of an image that failed."""
    return ImageResult(name, {"image": name, "error": error})


def _download(url: str, path: Path) -> Path:
    """Write the content of a URL to `path`; an attempt that fails is repeated after a pause."""
    import fsspec

    content = b""
    for attempt in range(1, MAX_DOWNLOAD_ATTEMPTS + 1):
        try:
            system, name = fsspec.core.url_to_fs(url)
            with system.open(name, "rb") as file:
                content = file.read(MAX_DOWNLOAD_BYTES + 1)
            break
        except FileNotFoundError as error:
            raise DataError(f"{url} does not exist; leave it out") from error
        except Exception as error:  # fsspec's stores have no common base class of errors
            if attempt == MAX_DOWNLOAD_ATTEMPTS:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise DataError(
                    f"{url} cannot be fetched ({reason}); check the address and your credentials"
                ) from error
            sleep(2.0**attempt)
    if len(content) > MAX_DOWNLOAD_BYTES:
        raise DataError(f"{url} is larger than {MAX_DOWNLOAD_BYTES >> 20} MiB; scale it down or leave it out")
    path.write_bytes(content)
    return path
