"""Extraction of many images or videos into a feature store: cached in shards, resumed after a stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from legenda.data.features.base import find_unstorable
from legenda.data.features.identity import ExtractorIdentity
from legenda.data.features.packed import write_store
from legenda.errors import ConfigError, DataError
from legenda.extractors.base import Extractor, identify
from legenda.extractors.batches import extract_batches, order_by_size
from legenda.extractors.images import check_ids, image_id
from legenda.extractors.processes import ExtractorProcesses
from legenda.extractors.resume import ShardCache, StoredImage
from legenda.extractors.video import FrameSampling
from legenda.io import check_output

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
    extractor: Extractor | ExtractorProcesses,
    out: str | Path,
    *,
    sampling: FrameSampling | None = None,
    batch_size: int = 32,
    workers: int = 2,
    shard_size: int = _SHARD_SIZE,
    progress: Callable[[int, int], None] | None = None,
) -> ExtractionReport:
    """Run the extractor over all images, ordered by size, and write the feature store `out`, in the given order.

    The id of an image is its file name without suffix. Images that cannot be read are skipped and reported.
    sampling: for videos in place of images, whose frames are stored as vectors without boxes.
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
    check_output(out, images)
    paths = [Path(image) for image in images]
    check_ids(paths)
    start = time.monotonic()
    identity = str(sampled_identity(extractor, sampling))
    cache = ShardCache(out, identity)
    todo = [path for path in paths if path not in cache]
    cached = done = len(paths) - len(todo)
    todo = todo if sampling is not None else order_by_size(todo, workers)
    skipped: list[tuple[Path, str]] = []
    pending: list[tuple[Path, StoredImage]] = []
    layout = cache.layout
    batches = extractor.batches if isinstance(extractor, ExtractorProcesses) else partial(extract_batches, extractor)
    for batch in batches(todo, batch_size, workers, sampling):
        for path, regions in batch:
            if isinstance(regions, str):
                skipped.append((path, regions))
                continue
            layout = layout or (regions[0].shape[1], regions[1] is not None)
            fault = _find_fault(*regions, layout)
            if fault is not None:
                where = f"image '{image_id(path)}' of extractor {extractor.name}"
                raise DataError(f"{out} is not written: {where} has {fault}; correct the extractor")
            pending.append((path, (image_id(path), *regions)))
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
    ids = [image_id(path) for path in paths if path not in unreadable]
    stored = (in_memory[name] if name in in_memory else cache.read(name) for name in ids)
    write_store(out, stored, extractor=identity)
    cache.remove()
    return ExtractionReport(len(ids), tuple(skipped), time.monotonic() - start, cached)


def sampled_identity(
    extractor: Extractor | ExtractorProcesses, sampling: FrameSampling | None = None
) -> ExtractorIdentity:
    """Return the identity that is stored with the features; that of frames ends in their sampling."""
    identity = extractor.identity if isinstance(extractor, ExtractorProcesses) else identify(extractor)
    return identity if sampling is None else replace(identity, name=identity.name + sampling.ending)


def _find_fault(features: np.ndarray, boxes: np.ndarray | None, layout: tuple[int, bool]) -> str | None:
    """Return what is wrong with regions that `write_store` would reject at the end of the extraction, or None."""
    if features.shape[1] != layout[0]:
        return f"features of width {features.shape[1]}, but those before {layout[0]}"
    if (boxes is not None) != layout[1]:
        return f"{'no ' if boxes is None else ''}boxes, unlike those before"
    return find_unstorable(features)
