"""Base class of stores with one entry per image, which is read and validated on access."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from legenda.data.features.base import UNNAMED, FeatureStore, RegionArrays
from legenda.data.features.validate import as_floats, require_real, validate_regions
from legenda.errors import DataError
from legenda.io import get_field, read_json

Sizes = Mapping[str, tuple[float, float]]
"""Width and height of images by id, in pixels."""

_HINT = "repair it or create the file again"


class PerImageStore(FeatureStore):
    """A store with one entry per image; see `legenda.data.features.base.FeatureStore` for what it offers.

    sizes: of the images, for boxes in pixels in files that do not hold the sizes themselves.
    """

    threads: ClassVar[int] = 1
    """How many images of a batch are read at once, where reading does not hold the interpreter."""

    def __init__(
        self, path: Path, ids: Iterable[str], *, wanted: str, extractor: str = UNNAMED, sizes_file: Path | None = None
    ) -> None:
        super().__init__(path, ids, extractor)
        self._sizes_file = sizes_file
        self._pools: dict[int, ThreadPoolExecutor] = {}
        if not self.ids:
            raise DataError(f"{path} holds no features of any image; {wanted}")

    @abstractmethod
    def _load(self, image: str) -> tuple[np.ndarray, np.ndarray | None]:
        """Return features (n, D) and boxes (n, 4) in 0..1 or None, not validated; raise any exception if damaged."""

    @cached_property
    def sizes(self) -> Sizes:
        """Return the image sizes in the annotations, by id and by file name."""
        return {} if self._sizes_file is None else read_sizes(self._sizes_file)

    @cached_property
    def _first(self) -> tuple[np.ndarray, np.ndarray | None]:
        return self._read_valid(self.ids[0])

    @property
    def feature_dim(self) -> int:
        """Return the width D of a region's feature vector, which is that of the first image."""
        return self._first[0].shape[1]

    @property
    def has_boxes(self) -> bool:
        """Return whether the regions come with boxes, as those of the first image do."""
        return self._first[1] is not None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self._sizes_file)

    def read(self, images: Sequence[str] | Sequence[int] | np.ndarray) -> RegionArrays:
        """Return images by id or position, in the given order; raise DataError naming one that is damaged."""
        names = [self.ids[position] for position in self.positions(images)]
        if self.threads > 1 and len(names) > 1:
            return pack(list(self._pool.map(self._read_matching, names)), self.feature_dim, self.has_boxes)
        return pack([self._read_matching(name) for name in names], self.feature_dim, self.has_boxes)

    @property
    def _pool(self) -> ThreadPoolExecutor:
        """The threads of this process; a process that is forked does not have those of its parent."""
        process = os.getpid()
        if process not in self._pools:
            self._pools[process] = ThreadPoolExecutor(self.threads)
        return self._pools[process]

    def _read_matching(self, image: str) -> tuple[np.ndarray, np.ndarray | None]:
        features, boxes = self._read_valid(image)
        fault = None
        if features.shape[1] != self.feature_dim:
            fault = f"features of width {features.shape[1]}, but the first image {self.feature_dim}"
        elif (boxes is not None) != self.has_boxes:
            fault = f"{'no ' if boxes is None else ''}boxes, unlike the first image"
        if fault is not None:
            raise DataError(f"{self.path}: image '{image}' has {fault}; a store holds features of one extractor")
        return features, boxes

    def _read_valid(self, image: str) -> tuple[np.ndarray, np.ndarray | None]:
        try:
            loaded, loaded_boxes = self._load(image)
            features = loaded if loaded.dtype == np.float16 else as_floats(loaded)
            boxes = None if loaded_boxes is None else as_floats(loaded_boxes)
        except DataError:
            raise
        except Exception as error:  # readers of damaged files raise exceptions of any type
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(f"{self.path}: image '{image}' cannot be read ({reason}); {_HINT}") from error
        fault = validate_regions(features, boxes)
        if fault is not None:
            raise DataError(f"{self.path}: image '{image}' has {fault}; {_HINT}")
        return features, boxes


def pack(images: Sequence[tuple[np.ndarray, np.ndarray | None]], feature_dim: int, with_boxes: bool) -> RegionArrays:
    """One batch of images' features (n, D) and boxes (n, 4), padded with zeros."""
    counts = np.array([len(features) for features, _ in images], np.int64)
    mask = np.arange(counts.max(initial=0)) < counts[:, None]
    halves = bool(images) and all(features.dtype == np.float16 for features, _ in images)
    packed = np.empty((*mask.shape, feature_dim), np.float16 if halves else np.float32)
    boxes = np.zeros((*mask.shape, 4), np.float32) if with_boxes else None
    for row, (features, image_boxes) in enumerate(images):
        packed[row, : len(features)] = features
        packed[row, len(features) :] = 0
        if boxes is not None and image_boxes is not None:
            boxes[row, : len(image_boxes)] = image_boxes.clip(0, 1)
    return RegionArrays(packed, boxes, mask)


def scale_boxes(boxes: np.ndarray, width: float, height: float) -> np.ndarray:
    """Boxes (n, 4) in pixels as x1 y1 x2 y2 in 0..1; up to one pixel outside, as rounding leaves it, is cut."""
    if not (width > 0 and height > 0):
        raise ValueError(f"an image of {width:g} x {height:g} pixels has no boxes")
    size = np.array([width, height, width, height], np.float64)
    require_real(boxes)
    with np.errstate(invalid="ignore", over="ignore"):  # `validate_regions` names what is NaN or infinite
        pixels = np.asarray(boxes, np.float64)
        near = (pixels >= -1) & (pixels <= size + 1)
        return np.where(near, pixels.clip(0, size), pixels) / size


def read_sizes(path: Path) -> dict[str, tuple[float, float]]:
    """Width and height of each image in COCO's annotations or a folder of them, by its id and by its file's name."""
    hint = "name COCO's annotations, whose images have id, width and height"
    if path.is_dir():
        files = sorted(path.glob("captions_*.json*"))
        if not files:
            raise DataError(f"{path} holds no captions_*.json; {hint}")
        return {name: size for file in files for name, size in read_sizes(file).items()}
    images = get_field(read_json(path, hint), "images", list, str(path), hint)
    sizes: dict[str, tuple[float, float]] = {}
    for number, image in enumerate(images):
        try:
            size = float(image["width"]), float(image["height"])
            sizes[str(image["id"])] = size
            sizes[Path(image["file_name"]).stem] = size
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{path}: images[{number}] lacks id, file_name, width or height; {hint}") from error
    return sizes
