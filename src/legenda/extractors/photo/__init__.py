"""The extractor `photo`: things, visual tokens and predicted words from networks that the package holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from PIL import Image

from legenda.extractors.base import ImageRegions
from legenda.extractors.photo.regions import RegionMaker
from legenda.extractors.photo.vision import Vision


@dataclass(frozen=True, eq=False)
class PhotoExtractor:
    """The extract function."""

    vision: Vision
    maker: RegionMaker

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the extractor of a folder; raise LegendaError for a file that is missing or damaged."""
        return cls(Vision.load(folder), RegionMaker.load(folder))

    def __call__(self, images: list[Image.Image]) -> list[ImageRegions]:
        """Return features `(N, layout.WIDTH)` and boxes `(N, 4)` of each image."""
        return [self.maker.regions(self.vision(image)) for image in images]
