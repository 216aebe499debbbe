"""Regions of many images or videos, batch by batch; images are read ahead by threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from PIL import Image

from legenda.errors import LegendaError
from legenda.extractors.base import Extractor, ImageRegions, run_extractor
from legenda.extractors.images import image_size, read_image
from legenda.extractors.video import FrameSampling, UnreadableVideoError, extract_video

Batch = list[tuple[Path, ImageRegions | str]]
"""Files with their regions, or with the reason why one cannot be read."""


def extract_batches(
    extractor: Extractor, paths: Sequence[Path], batch_size: int, workers: int, sampling: FrameSampling | None = None
) -> Iterator[Batch]:
    """Yield batches of images with their regions, in order, or single videos where their frames are sampled.

    workers: threads that read the next batch of images while the extractor runs. Raise DataError where it fails.
    """
    if sampling is not None:
        for path in paths:
            try:
                yield [(path, extract_video(extractor, path, sampling, batch_size))]
            except UnreadableVideoError as error:
                yield [(path, str(error))]
        return
    for batch in _prefetch(paths, batch_size, workers):
        readable = [(path, image) for path, image in batch if isinstance(image, Image.Image)]
        found: dict[Path, ImageRegions | str] = {path: reason for path, reason in batch if isinstance(reason, str)}
        if readable:
            regions = run_extractor(extractor, [image for _, image in readable], [path for path, _ in readable])
            found.update(zip((path for path, _ in readable), regions, strict=True))
        yield [(path, found[path]) for path, _ in batch]


def order_by_size(paths: Sequence[Path], workers: int) -> list[Path]:
    """Return image files ordered by width and height, so that most batches have one size."""
    with ThreadPoolExecutor(workers) as pool:
        sizes = dict(zip(paths, pool.map(image_size, paths), strict=True))
    return sorted(paths, key=sizes.__getitem__)


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
