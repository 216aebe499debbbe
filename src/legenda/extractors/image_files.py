"""Image files whose regions are extracted in batches; one that fails does not affect its batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from legenda.errors import LegendaError
from legenda.extractors.base import ImageRegions
from legenda.extractors.images import read_image

RunExtractor = Callable[[list[Image.Image], Sequence[Path]], list[ImageRegions]]
"""`legenda.extractors.run_extractor` of an extractor."""


@dataclass
class ImageFile:
    """An image on the way to its regions.

    name: what messages and outputs call it; path: its file. `image` and `regions` are None where `error` is a message.
    """

    name: str
    path: Path
    image: Image.Image | None = None
    regions: ImageRegions | None = None
    error: str | None = None

    def fail(self, error: LegendaError) -> None:
        """Keep the message of an error, which names the image by its name."""
        message = str(error)
        named = message if str(self.path) in message else f"{self.path}: {message}"
        self.error = named.replace(str(self.path), self.name)


def extract_files(files: Sequence[ImageFile], run: RunExtractor) -> None:
    """Read the images of a batch and extract their regions; where a batch fails, one image at a time."""
    for file in files:
        try:
            file.image = read_image(file.path)
        except LegendaError as error:
            file.fail(error)
    readable = [file for file in files if file.image is not None]
    if len(readable) > 1:
        with suppress(LegendaError):
            _extract(readable, run)
            return
    for file in readable:
        try:
            _extract([file], run)
        except LegendaError as error:
            file.fail(error)


def _extract(batch: Sequence[ImageFile], run: RunExtractor) -> None:
    images = [file.image for file in batch if file.image is not None]
    for file, regions in zip(batch, run(images, [file.path for file in batch]), strict=True):
        file.regions = regions
