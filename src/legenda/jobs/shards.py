"""Process one shard of a job: its files are written atomically, once, by any worker, in any order."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from legenda.extractors.base import ImageRegions
from legenda.extractors.images import order_by_size
from legenda.io import atomic_write
from legenda.jobs.job import Job

MAX_ATTEMPTS = 2
"""Times that a shard, a batch or an image may end its worker before what ends it is searched for in smaller parts."""


@dataclass(frozen=True)
class ImageResult:
    """What a shard holds of an image: its line, with an "error" where it failed, and the regions of features."""

    line: Mapping[str, Any]
    regions: ImageRegions | None = None


def failure(name: str, error: str) -> ImageResult:
    """Return the result of an image that failed."""
    return ImageResult({"image": name, "error": error})


class Task(Protocol):
    """What is made of images."""

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
class ShardResult:
    """A complete shard: its images, how many of them failed, and whether an earlier call completed it."""

    shard: int
    images: int
    failed: int
    cached: bool


def process_shard(job: Job, shard: int, task: Task, advance: Callable[[], object] = lambda: None) -> ShardResult:
    """Process the images of a shard and write its files, unless they exist; `advance` is called after each image.

    Batches are made of images in the order of their sizes. A shard whose worker was killed is repeated from its first
    image, in the same batches, so that its files are the same; an image at which two workers were killed while it was
    alone gets an error.
    """
    path = job.shard(shard)
    if path.exists():
        return read_result(job, shard, cached=True)
    names = job.names(shard)
    order = order_by_size(names, job.base)
    ordered = [names[position] for position in order]
    attempts = _AttemptLog(job.folder / f".{path.stem}.attempts")
    if attempts.count < MAX_ATTEMPTS:
        processed = task.process(ordered, job.base)
    else:
        processed = _process_carefully(task, ordered, job.base, attempts)
    results: dict[int, ImageResult] = {}
    for position, result in zip(order, processed, strict=True):
        results[position] = result
        advance()
    in_order = [results[position] for position in range(len(names))]
    with atomic_write(path, sync=True) as partial:
        task.save(in_order, path.with_suffix(".safetensors"))
        partial.write_text("".join(json.dumps(result.line) + "\n" for result in in_order), encoding="utf-8")
    attempts.delete()
    return read_result(job, shard, cached=False)


def read_result(job: Job, shard: int, *, cached: bool) -> ShardResult:
    """Return the counts of a complete shard."""
    failed = Counter("error" in line for line in job.lines(shard))
    return ShardResult(shard, failed.total(), failed[True], cached)


class _AttemptLog:
    """The attempts at a shard, and the step at which each of them ended.

    The file has a line "start" for each attempt and, where a shard is processed carefully, a line before each step.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        attempts = path.read_text(encoding="utf-8").split("start\n")[1:] if path.exists() else []
        self.count = len(attempts)
        self._ends = Counter(attempt.splitlines()[-1] for attempt in attempts if attempt)
        self._append("start")

    def begin(self, step: str) -> bool:
        """Note that a step begins and return True, or return False where it has ended MAX_ATTEMPTS workers."""
        if self._ends[step] >= MAX_ATTEMPTS:
            return False
        self._append(step)
        return True

    def _append(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def delete(self) -> None:
        self._path.unlink(missing_ok=True)


def _process_carefully(task: Task, names: Sequence[str], folder: Path, attempts: _AttemptLog) -> Iterator[ImageResult]:
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
