"""Extraction of many images into a feature store: prefetched by threads, cached in shards, resumed after a stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from legenda.errors import ConfigError, DataError, LegendaError
from legenda.extractors.base import Extractor, run_extractor
from legenda.extractors.fingerprint import identify
from legenda.extractors.images import read_image
from legenda.extractors.resume import ShardCache, StoredImage
from legenda.features.validate import as_floats, largest_feature, validate_values
from legenda.features.writer import write_store

_SHARD_SIZE = 1_024


@dataclass(frozen=True)
class ExtractionReport:
    """The result of an extraction.

    images: how many the store holds; cached: how many of them an earlier, stopped call had extracted; skipped: the
    images that cannot be read, with the reason; seconds: the wall time.
    """

    images: int
    skipped: tuple[tuple[Path, str], ...]
    seconds: float
    cached: int = 0


def extract_store(
    images: Sequence[str | Path],
    extractor: Extractor,
    out: str | Path,
    *,
    batch_size: int = 32,
    workers: int = 2,
    shard_size: int = _SHARD_SIZE,
    progress: Callable[[int, int], None] | None = None,
) -> ExtractionReport:
    """Run the extractor over all images and write the feature store `out`, in the given order.

    The id of an image is its file name without suffix. Images that cannot be read are skipped and reported.
    workers: threads that read the next batches while the extractor runs.
    shard_size: images after which the finished ones are written to a hidden folder next to `out`. When called again
    after a stop, even with other images, only those are extracted that are not cached or have changed. The folder is
    removed when the store is complete; for a moment the disk holds both.
    progress: called after each batch with the number of finished images and of all.
    Raises DataError when two images share an id, when no image can be read, or when the extractor fails or returns
    anything but regions; `out` is not written then.
    """
    out = Path(out)
    for name, value in (("batch_size", batch_size), ("workers", workers), ("shard_size", shard_size)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1")
    if out.is_dir():
        raise ConfigError(f"{out} is a folder; name the feature file to write")
    paths = [Path(image) for image in images]
    _check_ids(paths)
    start = time.monotonic()
    identity = str(identify(extractor))
    cache = ShardCache(out, identity)
    todo = [path for path in paths if path not in cache]
    cached = done = len(paths) - len(todo)
    skipped: list[tuple[Path, str]] = []
    pending: list[tuple[Path, StoredImage]] = []
    layout = cache.layout
    for batch in _prefetch(todo, batch_size, workers):
        readable = [(path, image) for path, image in batch if isinstance(image, Image.Image)]
        skipped += [(path, reason) for path, reason in batch if isinstance(reason, str)]
        if readable:
            regions = run_extractor(extractor, [image for _, image in readable], [path for path, _ in readable])
            for (path, _), (features, boxes) in zip(readable, regions, strict=True):
                layout = layout or (features.shape[1], boxes is not None)
                fault = _find_fault(features, boxes, layout)
                if fault is not None:
                    where = f"image '{path.stem}' of extractor {extractor.name}"
                    raise DataError(f"{out} is not written: {where} has {fault}; correct the extractor")
                pending.append((path, (path.stem, features, boxes)))
        done += len(batch)
        if len(pending) >= shard_size:
            cache.add([image for _, image in pending], [path for path, _ in pending])
            pending.clear()
        if progress is not None:
            progress(done, len(paths))
    if len(skipped) == len(paths):
        reason = f"; the first: {skipped[0][1]}" if skipped else ""
        raise DataError(f"{out} is not written: none of the {len(paths)} images can be read{reason}")
    in_memory = {image[0]: image for _, image in pending}
    unreadable = {path for path, _ in skipped}
    ids = [path.stem for path in paths if path not in unreadable]
    stored = (in_memory[name] if name in in_memory else cache.read(name) for name in ids)
    write_store(out, stored, extractor=identity)
    cache.remove()
    return ExtractionReport(len(ids), tuple(skipped), time.monotonic() - start, cached)


def _check_ids(paths: Sequence[Path]) -> None:
    seen: dict[str, Path] = {}
    for path in paths:
        if path.stem in seen:
            raise DataError(f"{seen[path.stem]} and {path} would share the id '{path.stem}'; rename one of them")
        seen[path.stem] = path


def _find_fault(features: np.ndarray, boxes: np.ndarray | None, layout: tuple[int, bool]) -> str | None:
    """Return what is wrong with regions that `write_store` would reject at the end of the extraction, or None."""
    if features.shape[1] != layout[0]:
        return f"features of width {features.shape[1]}, but those before {layout[0]}"
    if (boxes is not None) != layout[1]:
        return f"{'no ' if boxes is None else ''}boxes, unlike those before"
    return validate_values(as_floats(features), None, largest_feature(np.dtype(np.float16)))


def _prefetch(paths: Sequence[Path], batch_size: int, workers: int) -> Iterator[list[tuple[Path, Image.Image | str]]]:
    """Yield batches of images, or of the reason why one cannot be read; read the next batch in the background."""
    remaining = iter(paths)
    with ThreadPoolExecutor(workers) as pool:

        def submit() -> list[tuple[Path, Future[Image.Image | str]]]:
            return [(path, pool.submit(_try_to_read, path)) for path in islice(remaining, batch_size)]

        following = submit()
        try:
            while following:
                batch, following = following, submit()
                yield [(path, future.result()) for path, future in batch]
        finally:
            for _, future in following:
                future.cancel()


def _try_to_read(path: Path) -> Image.Image | str:
    try:
        return read_image(path)
    except LegendaError as error:
        return str(error)
