"""Captioned images whose regions a backbone makes: frozen, stored once; or trained with the captioner, from pixels."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
from PIL import Image
from pydantic import PrivateAttr

from legenda.config import PositiveInt
from legenda.data.captions import CaptionDataset, CaptionedData, KarpathyData, RegionSource
from legenda.errors import DataError
from legenda.features import open_features
from legenda.features.base import DigestedReader, FeatureStore
from legenda.features.extraction import extract_missing
from legenda.features.extractors import load_extractor
from legenda.features.readers import split_kind
from legenda.images.extractor import Extractor, run_extractor
from legenda.images.files import read_image
from legenda.io import file_digest
from legenda.regions import Regions
from legenda.text.annotations import CaptionedImage

__all__ = ["ImageData"]

ImageReader = Callable[[np.ndarray], list[Image.Image]]
"""A function from positions in a split `(B,)` to their images."""
_READERS = 8
_DIGESTED = 1000
"""Image files of which a run keeps a digest."""


class BackboneData(CaptionedData):
    """Captioned images; their regions are stored by a frozen backbone, or made in training by one that is trained."""

    backbone: str = "photo"
    """hf:MODEL, timm:MODEL or torchvision:MODEL; a frozen one may be any extractor."""
    features: Path | None = None  # pyrefly: ignore[bad-override]  # optional here
    """The store of a frozen backbone; it is written where it does not exist."""
    train_backbone: bool = False
    """Whether the backbone is trained with the captioner, at training.backbone_rate of its learning rate."""
    image_size: PositiveInt = 224
    """The side of the square to which images are resized for a backbone that is trained, in pixels."""
    augment: bool = True
    """Crop images and change their colors at random, where the backbone is trained."""
    gradient_checkpointing: bool = False
    """Compute the activations of a trained backbone twice instead of keeping them: less memory, slower."""

    @property
    def feature_path(self) -> Path:
        """The store of the features of a frozen backbone."""
        raise NotImplementedError

    def reader(self, images: Sequence[CaptionedImage]) -> ImageReader:
        """Return what reads the images of a split."""
        raise NotImplementedError

    def digest_images(self, images: Sequence[CaptionedImage]) -> str:
        """Return a digest of a sample of the images of a split."""
        raise NotImplementedError

    def extract(self) -> None:
        """Write the store."""
        raise NotImplementedError

    def open_store(self) -> FeatureStore:
        """Return the features, extracted where they have no store."""
        if not split_kind(self.feature_path)[0].exists():
            self.extract()
        return open_features(self.feature_path)

    def open_regions(self, *, train: bool = False) -> RegionSource:
        """Return the stored features, or the pixels for a backbone that is trained."""
        if not self.train_backbone:
            source = RegionSource.stored(self.open_store())

            def captions(images: Sequence[CaptionedImage]) -> CaptionDataset:
                return replace(source.captions(images), open_images=self.reader(images))

            return replace(source, captions=captions)
        pixels = self.extracted(load_extractor(f"pixels:{self.image_size}"))
        if not train:
            return pixels
        from legenda.models.backbone import load_backbone

        options = {"augment": self.augment, "gradient_checkpointing": self.gradient_checkpointing}
        backbone = load_backbone(self.backbone, self.image_size, **options)
        return replace(pixels, feature_dim=backbone.set_trainable(True), backbone=backbone)

    def extracted(self, extractor: Extractor) -> RegionSource:
        """Return the regions that an extractor makes of images whenever they are read."""

        def captions(images: Sequence[CaptionedImage]) -> CaptionDataset:
            ids, references = tuple(image.id for image in images), tuple(image.captions for image in images)
            open_images, window = self.reader(images), getattr(self, "window", 0)

            def read(positions: np.ndarray) -> Regions:
                extracted = run_extractor(extractor, open_images(positions), [ids[position] for position in positions])
                return Regions.stack([Regions.from_numpy(*regions) for regions in extracted])

            reader = DigestedReader(read, partial(self.digest_images, images))
            return CaptionDataset(
                ids, references, reader, self.source, extractor.identity, open_images=open_images, window=window
            )

        return RegionSource(captions, feature_dim=0, has_boxes=True)


class ImageData(BackboneData, KarpathyData):
    """Captioned image files."""

    kind: Literal["images"] = "images"  # type: ignore[assignment]  # pyrefly: ignore
    features: Path | None = None  # pyrefly: ignore[bad-override]  # optional here
    """The store of a frozen backbone, written where it does not exist; by default the name of the annotations, with
    that of the backbone and .safetensors behind it."""
    images: Path | None = None
    """The folder of the images; by default that of the annotations."""
    _extractor: Extractor | None = PrivateAttr(None)

    @property
    def feature_path(self) -> Path:
        """The store of the features."""
        annotations, name = Path(os.path.normpath(self.annotations.absolute())), re.sub(r"[^\w.-]+", "-", self.backbone)
        return self.features or annotations.with_name(f"{annotations.name}.{name}.safetensors")  # "." has no name

    def extract(self) -> None:
        """Extract the features of the images that the store lacks; a stopped call is continued."""
        paths = [*map(self._path, self.read_images())]
        absent = [path.name for path in paths if not path.is_file()]
        if absent:
            raise DataError(
                f"{len(absent)} of {len(paths)} images of {self.annotations} are not in "
                f"{self.images or self.annotations.parent}, such as {', '.join(absent[:5])}; name their folder with "
                "data.images=FOLDER, or take them out of the annotations"
            )
        extract_missing(paths, partial(load_extractor, self.backbone), self.feature_path)

    def open_store(self) -> FeatureStore:
        """Return the features; of images that the default store lacks, they are extracted first."""
        if self.features is None:
            self.extract()
        return super().open_store()

    def reader(self, images: Sequence[CaptionedImage]) -> ImageReader:
        """Return what reads image files in threads; it raises DataError, naming one, that cannot be read."""
        return partial(_read_files, [self._path(image) for image in images])

    def digest_images(self, images: Sequence[CaptionedImage]) -> str:
        """Return a digest of blocks of at most 1,000 of the image files."""
        sample = images[:: -(-len(images) // _DIGESTED) or 1]
        files = b"".join(file_digest(self._path(image), 1 << 16) for image in sample if self._path(image).is_file())
        return f"{len(sample)} of {len(images)} files, blake2b {hashlib.blake2b(files, digest_size=8).hexdigest()}"

    def with_extractor(self, extractor: Extractor) -> ImageData:
        """Return the same images, whose regions an extractor makes whenever they are read, for an evaluation."""
        data = self.replace()
        data._extractor = extractor
        return data

    def open_regions(self, *, train: bool = False) -> RegionSource:
        """Return the regions of the extractor of `with_extractor`, if there is one; else as `BackboneData` does."""
        return super().open_regions(train=train) if self._extractor is None else self.extracted(self._extractor)

    def _path(self, image: CaptionedImage) -> Path:
        """Return the file of an image; a path of another machine is found by its name."""
        folders = [self.images] if self.images else [self.annotations.parent, self.annotations]
        paths = [folder / name for folder in folders for name in (image.file, PurePosixPath(image.file).name)]
        return next((path for path in paths if path.is_file()), paths[0])


def _read_files(paths: Sequence[Path], positions: np.ndarray) -> list[Image.Image]:
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(read_image, [paths[position] for position in positions.tolist()]))
