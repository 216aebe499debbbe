"""Batches of images, read ahead by threads; an image that fails does not affect its batch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image

from legenda.errors import LegendaError
from legenda.extractors.base import ImageRegions
from legenda.extractors.images import image_size, read_image
from legenda.extractors.sources import fetch, is_url

RunExtractor = Callable[[list[Image.Image], Sequence[str | Path]], list[ImageRegions]]
"""`legenda.extractors.run_extractor` of an extractor."""
_READERS = 8
"""Threads that read images, which wait for URLs most of the time."""


@dataclass
class ImageFile:
    """An image on the way to its regions.

    name: its path, relative to `folder`, or its URL; what messages and outputs call it. `image` and `regions` are None
    where `error` is a message.
    """

    name: str
    folder: Path = Path()
    image: Image.Image | None = None
    regions: ImageRegions | None = None
    error: str | None = None

    @property
    def source(self) -> Path | bytes:
        """The path of the file, or the content of the URL, which is fetched; raise DataError where that fails."""
        return fetch(self.name) if is_url(self.name) else self.folder / self.name

    def read(self) -> ImageFile:
        """Read the image, or keep the error."""
        try:
            source = self.source
            self.image = read_image(BytesIO(source) if isinstance(source, bytes) else source, self.name)
        except LegendaError as error:
            self.fail(error)
        return self

    def fail(self, error: LegendaError) -> None:
        """Keep the message of an error, with the name of the image."""
        message = str(error)
        self.error = message if self.name in message else f"{self.name}: {message}"


def read_batches(names: Sequence[str], batch_size: int, folder: Path = Path()) -> Generator[list[ImageFile]]:
    """Yield batches of images in order; threads read the next one while the caller works."""

    def submit(start: int) -> Iterator[ImageFile]:
        return pool.map(ImageFile.read, [ImageFile(name, folder) for name in names[start : start + batch_size]])

    with ThreadPoolExecutor(_READERS) as pool:
        following = submit(0)
        for start in range(batch_size, len(names) + batch_size, batch_size):
            batch, following = following, submit(start)
            yield list(batch)


def extract_batch(batch: Sequence[ImageFile], run: RunExtractor) -> None:
    """Extract the regions of the images that were read; where that fails, of one image at a time."""
    readable = [file for file in batch if file.image is not None]
    if len(readable) > 1:
        with suppress(LegendaError):
            _extract(readable, run)
            return
    for file in readable:
        try:
            _extract([file], run)
        except LegendaError as error:
            file.fail(error)


def order_by_size(names: Sequence[str], folder: Path = Path()) -> list[int]:
    """Return the positions of images ordered by width and height, so that most batches have one size; URLs first."""

    def size(name: str) -> tuple[int, int]:
        return (0, 0) if is_url(name) else image_size(folder / name)

    with ThreadPoolExecutor(_READERS) as pool:
        sizes = list(pool.map(size, names))
    return sorted(range(len(names)), key=sizes.__getitem__)


def _extract(batch: Sequence[ImageFile], run: RunExtractor) -> None:
    images = [file.image for file in batch if file.image is not None]
    for file, regions in zip(batch, run(images, [file.name for file in batch]), strict=True):
        file.regions = regions
