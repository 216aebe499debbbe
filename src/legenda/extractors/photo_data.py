"""Captioned photographs whose features the extractor `photo` computes when they are first needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from legenda.data.annotations import CaptionedImage
from legenda.data.captions import KarpathyData
from legenda.data.features.base import FeatureStore
from legenda.extractors.registry import load_extractor
from legenda.jobs.features import extract_store

_SUFFIX = ".photo.safetensors"
_VALIDATION = 10
"""One of so many images validates where the annotations have no split val."""


class PhotoData(KarpathyData):
    """Captioned photographs; without features, those of the extractor `photo` are stored next to the annotations.

    Where the annotations have no split val, every tenth training image belongs to it; of less than ten, the last one.
    """

    kind: Literal["photo"] = "photo"  # type: ignore[assignment]  # pyrefly: ignore
    features: Path | None = None  # pyrefly: ignore[bad-override]  # optional here
    """A store made with the extractor `photo`; by default the annotations' name with the suffix .photo.safetensors,
    which is written where it does not exist."""
    images: Path | None = None
    """The folder of the photographs; by default that of the annotations."""

    @property
    def feature_path(self) -> Path:
        """The store of the features."""
        return self.features or self.annotations.with_name(self.annotations.name + _SUFFIX)

    def open_store(self) -> FeatureStore:
        """Return the features, extracted where they have no store."""
        if self.features is None and not self.feature_path.exists():
            folder = self.images or self.annotations.parent
            extract_store([folder / image.file for image in self._images()], load_extractor("photo"), self.feature_path)
        return super().open_store()

    def _images(self) -> list[CaptionedImage]:
        images = super()._images()
        if any(image.split == "val" for image in images):
            return images
        train = [image.id for image in images if image.split == "train"]
        chosen = set(train[_VALIDATION - 1 :: _VALIDATION] or train[1:][-1:])
        return [replace(image, split="val") if image.id in chosen else image for image in images]
