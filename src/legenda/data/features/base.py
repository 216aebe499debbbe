"""Feature stores: their interface, the identity of what made the features, and what makes regions valid.

Several are read as one, in which one rule finds the images of a data set.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from legenda.errors import DataError

if TYPE_CHECKING:
    from legenda.regions import Regions


TOLERANCE = 0.01
"""The largest difference of two fingerprints of one extractor, relative to the size of its features."""
_DIGEST = re.compile(r"[-@][0-9a-f]{8}(?=@|$)")


@dataclass(frozen=True)
class ExtractorIdentity:
    """What distinguishes extractors.

    name: with the digest of its files, where it has any. fingerprint: the root mean square of its features on the test
    image, then projections of their moments; empty where it is not known. The text of an identity, in stores and
    config.json, is `name` or `name#version:feature_dim:fingerprint`.
    """

    name: str
    version: str = ""
    feature_dim: int = 0
    fingerprint: tuple[float, ...] = ()

    @classmethod
    def parse(cls, text: str) -> ExtractorIdentity:
        """Return the identity of a text; one of another form is a name."""
        name, _, rest = text.partition("#")
        try:
            version, dim, values = rest.rsplit(":", 2)
            return cls(name, version, int(dim), tuple(map(float, values.split(","))))
        except ValueError:
            return cls(text)

    def __str__(self) -> str:
        values = ",".join(f"{value:.4g}" for value in self.fingerprint)
        return f"{self.name}#{self.version}:{self.feature_dim}:{values}" if values else self.name

    @property
    def base_name(self) -> str:
        """The name without the digest of files."""
        return _DIGEST.sub("", self.name)

    def find_difference(self, other: ExtractorIdentity) -> str | None:
        """Return how `other` differs, as the end of a sentence about it, or None for the same extractor.

        Equal names, digests included, are enough; a changed file is the same extractor where version, width and
        fingerprint agree.
        """
        if self.name == other.name:
            return None
        if self.base_name != other.base_name:
            return f"is {other.name}"
        if self.version != other.version:
            return f"has the version {other.version!r}, not {self.version!r}"
        if not self.fingerprint or not other.fingerprint:
            return f"is {other.name}, whose features were not compared"
        if self.feature_dim != other.feature_dim:
            return f"returns {other.feature_dim} channels, not {self.feature_dim}"
        if len(self.fingerprint) != len(other.fingerprint):
            return f"has {len(other.fingerprint)} numbers as fingerprint, not {len(self.fingerprint)}"
        pairs = zip(self.fingerprint, other.fingerprint, strict=True)
        difference = max(abs(a - b) for a, b in pairs) / max(abs(self.fingerprint[0]), 1e-9)
        if difference <= TOLERANCE:
            return None
        return f"differs by {difference:.0%} on the test image, where {TOLERANCE:.0%} is the limit"


def extractor_name(text: str) -> str:
    """Return the name in the text of an identity."""
    return ExtractorIdentity.parse(text).name


def is_same_extractor(first: str, second: str) -> bool:
    """Return whether two texts of identities belong to one extractor."""
    return ExtractorIdentity.parse(first).find_difference(ExtractorIdentity.parse(second)) is None


Image = tuple[str, np.ndarray, np.ndarray | None]
"""The id of an image, its features (n, D), and its boxes (n, 4), x1 y1 x2 y2 in 0..1, or None."""


@dataclass(frozen=True, eq=False)
class RegionArrays:
    """The regions of B images, padded with zeros to the same number N.

    features: (B, N, D), float16 or float32 as stored; boxes: (B, N, 4) float32, x1 y1 x2 y2 in 0..1, or None;
    mask: (B, N) bool, True = real.
    """

    features: np.ndarray
    boxes: np.ndarray | None
    mask: np.ndarray


UNNAMED = "unnamed"
"""The extractor of a file without the name of one."""

_BATCH = 64
"""Images that are read at once where all are read."""
_BOX_TOLERANCE = 1e-3
_LARGEST = 1e9
"""The largest feature, far beyond those of all extractors: products of larger ones overflow in float32."""
_HALF_INFINITY = 0x7C00
"""The bits of float16 infinity; without the sign bit, those of NaN are greater, those of finite numbers less."""
_BLOCK = 1 << 16
_REAL = "fiub"
"""The kinds of dtypes of real numbers."""


class FeatureStore(ABC):
    """The stored regions of many images: read lazily, in any order, from several threads or processes.

    A store is cheap to pickle: a worker process opens the file anew.

    path: the file or folder, for messages. ids: the images, in the order of their positions.
    extractor: the name of what made the features.
    Raise DataError where an image occurs twice.
    """

    feature_dim: int
    """The width D of a region's feature vector."""
    has_boxes: bool
    """Whether the regions come with boxes."""

    def __init__(self, path: Path, ids: Iterable[str], extractor: str = UNNAMED) -> None:
        self.path, self.ids, self.extractor = path, tuple(ids), extractor
        self._positions = {image: position for position, image in enumerate(self.ids)}
        if len(self._positions) != len(self.ids):
            twice = next(image for position, image in enumerate(self.ids) if self._positions[image] != position)
            raise DataError(f"{path} holds image '{twice}' twice; leave one of them out")

    @abstractmethod
    def read(self, images: Sequence[str] | Sequence[int] | np.ndarray) -> RegionArrays:
        """Return images by id or position, in the given order; raise DataError naming what cannot be read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, image: object) -> bool:
        return image in self._positions

    def index(self, image: str) -> int:
        """Return the position of an image; DataError when it is not there."""
        position = self._positions.get(image)
        if position is None:
            raise DataError(f"{self.path} holds no features of image '{image}'; extract that image too")
        return position

    def positions(self, images: Sequence[str] | Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the positions of images by id or position; raise DataError for one outside the store."""
        positions = np.array([self.index(image) if isinstance(image, str) else image for image in images], np.int64)
        if ((positions < 0) | (positions >= len(self))).any():
            raise DataError(f"{self.path} has {len(self)} images; ask for positions from 0 to {len(self) - 1} only")
        return positions

    def images(self, chosen: Sequence[int] | None = None) -> Iterator[Image]:
        """Yield every image, or those at the chosen positions, without padding; raise DataError for a faulty one."""
        chosen = range(len(self)) if chosen is None else chosen
        for first in range(0, len(chosen), _BATCH):
            positions = chosen[first : first + _BATCH]
            arrays = self.read(positions)
            for row, (position, mask) in enumerate(zip(positions, arrays.mask, strict=True)):
                boxes = None if arrays.boxes is None else arrays.boxes[row][mask]
                yield self.ids[position], arrays.features[row][mask], boxes


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


def validate_regions(features: np.ndarray, boxes: np.ndarray | None) -> str | None:
    """Return what is wrong with the regions of one image (shapes, NaN, invalid boxes), or None."""
    shape_fault = validate_shapes(features, boxes)
    return shape_fault or validate_values(features, boxes, largest_feature(np.dtype(np.float32)))


def largest_feature(dtype: np.dtype) -> float:
    """Return the largest feature that a store of a dtype may hold."""
    return min(float(np.finfo(dtype).max), _LARGEST)


def find_unstorable(features: np.ndarray) -> str | None:
    """Return why the features (n, D) of an extractor cannot be stored in float16, or None."""
    return validate_values(as_floats(features), None, largest_feature(np.dtype(np.float16)))


def validate_shapes(features: np.ndarray, boxes: np.ndarray | None) -> str | None:
    """Return what is wrong with types and shapes of one image's features (n, D) and boxes (n, 4), or None."""
    for values in (features, boxes):
        if values is not None and values.dtype.kind not in _REAL:
            return _type_fault(values)
    if features.ndim != 2 or 0 in features.shape:
        return f"features of shape {features.shape}, where (regions, width) with at least one region is needed"
    if boxes is not None and boxes.shape != (len(features), 4):
        return f"boxes of shape {boxes.shape} for {len(features)} regions"
    return None


def validate_values(features: np.ndarray, boxes: np.ndarray | None, limit: float) -> str | None:
    """Return what is wrong with features (..., D), over `limit`, or boxes (R, 4), outside 0..1, or None."""
    if features.dtype == np.float16:
        bits = features.reshape(-1).view(np.uint16)  # np.isfinite takes five times as long
        blocks = (bits[start : start + _BLOCK] for start in range(0, bits.size, _BLOCK))
        if any(((block & 0x7FFF) >= _HALF_INFINITY).any() for block in blocks):
            return "features that are NaN or infinite"
    elif features.size:
        worst = np.maximum(-features.min(), features.max())  # NaN wins every minimum and maximum
        if not np.isfinite(worst):
            return "features that are NaN or infinite"
        if worst > limit:
            return f"features as large as {worst:g}, where the limit is {limit:g}"
    if boxes is not None:
        inside = ((boxes >= -_BOX_TOLERANCE) & (boxes <= 1 + _BOX_TOLERANCE)).all(1)
        if not inside.all():
            return f"the box {boxes[~inside][0].tolist()}, which leaves 0..1"
        cut = boxes.clip(0, 1)
        filled = (cut[:, 2:] > cut[:, :2]).all(1)
        if not filled.all():
            return f"the box {boxes[~filled][0].tolist()}, which is empty (x1 < x2 and y1 < y2 are needed)"
    return None


def as_floats(values: np.ndarray) -> np.ndarray:
    """Return numbers as float32; overflow becomes infinite, which `validate_values` reports.

    Raise TypeError for values that are no real numbers: complex numbers, text, dates, objects.
    """
    values = np.asarray(values)
    require_real(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32)


def require_real(values: np.ndarray) -> None:
    """Raise TypeError for values that are no real numbers."""
    if values.dtype.kind not in _REAL:
        raise TypeError(_type_fault(values))


def _type_fault(values: np.ndarray) -> str:
    return f"values of type {values.dtype}, where real numbers are needed"


def grid_boxes(height: int, width: int) -> np.ndarray:
    """Return the boxes (height * width, 4) of the cells of a grid in row-major order, x1 y1 x2 y2 in 0..1."""
    y, x = np.divmod(np.arange(height * width), width)
    corners = [x / width, y / height, (x + 1) / width, (y + 1) / height]
    return np.stack(corners, axis=1).astype(np.float32)


RegionReader = Callable[[np.ndarray], "Regions"]
"""A function from positions in a split `(B,)` to the Regions of their images."""

_COCO = re.compile(r"(?:COCO_[a-z]+\d{4}_)?(\d{12})")
"""COCO's names of images: COCO_train2014_000000000009, and 000000000009 since 2017."""


def coco_number(name: str) -> str | None:
    """Return the number of an image as text in COCO's name for it, without zeros in front; None for another name."""
    match = _COCO.fullmatch(name)
    return None if match is None else str(int(match[1]))


class ImageIndex:
    """Where stores hold images, by one rule for their names.

    An image is found under its id; else under its file's name without suffix; else, where its id is a number, under
    COCO's name with that number. Two entries that fit equally well are refused.
    """

    def __init__(self, stores: Sequence[FeatureStore]) -> None:
        self._stores = stores
        self._numbers: dict[str, list[tuple[int, int]]] | None = None

    def find(self, image: str, file: str = "") -> tuple[int, int] | None:
        """Return the number of the store of an image and its position there, None where no store has it.

        file: the path or name of its file, where it is known. Raise DataError where several entries fit.
        """
        for name in dict.fromkeys((image, PurePosixPath(file).stem)):
            if entries := [(n, store.index(name)) for n, store in enumerate(self._stores) if name in store]:
                return self._only(image, entries)
        return self._only(image, self._coco.get(image, []))

    @property
    def _coco(self) -> dict[str, list[tuple[int, int]]]:
        """Stores and positions of images by COCO's number."""
        if self._numbers is None:
            self._numbers = {}
            for number, store in enumerate(self._stores):
                for position, name in enumerate(store.ids):
                    if (digits := coco_number(name)) is not None:
                        self._numbers.setdefault(digits, []).append((number, position))
        return self._numbers

    def _only(self, image: str, entries: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
        if len(entries) > 1:
            first, second = (f"{self._stores[n].path} ('{self._stores[n].ids[i]}')" for n, i in entries[:2])
            raise DataError(f"image '{image}' may be that of {first} or of {second}; leave one of them out")
        return entries[0] if entries else None


@dataclass(frozen=True, eq=False)
class ConcatFeatureStore:
    """One or more feature stores of one extractor, read as one."""

    stores: tuple[FeatureStore, ...]

    @property
    def feature_dim(self) -> int:
        """Return the width D of a region's feature vector."""
        return self.stores[0].feature_dim

    @property
    def has_boxes(self) -> bool:
        """Return whether the regions come with boxes."""
        return self.stores[0].has_boxes

    @property
    def extractor(self) -> str:
        """The extractor of the stores."""
        return self.stores[0].extractor

    @property
    def source(self) -> str:
        """Return the stores' paths, for messages."""
        return ", ".join(str(store.path) for store in self.stores)

    def reader(self, images: Sequence[str], files: Sequence[str] = ()) -> RegionReader:
        """Return a reader of the regions of these images by their positions in `images`.

        files: the path or name of each image's file, where they are known. Raise DataError, naming one, for images that
        no store has under a name of `ImageIndex`.
        """
        index = ImageIndex(self.stores)
        names = list(zip_longest(images, files, fillvalue=""))
        entries = [index.find(image, file) for image, file in names]
        missing = [file or image for (image, file), entry in zip(names, entries, strict=True) if entry is None]
        if missing:
            raise DataError(
                f"{self.source} lacks image '{missing[0]}', and {len(missing)} of {len(names)} in all; extract them too"
            )
        slots = np.array(entries, np.int64).reshape(-1, 2)

        def read(positions: np.ndarray) -> Regions:
            if len(self.stores) == 1:
                return read_regions(self.stores[0], slots[positions, 1])
            unique, row = np.unique(slots[positions], axis=0, return_inverse=True)
            parts = [
                read_regions(store, unique[unique[:, 0] == number, 1])
                for number, store in enumerate(self.stores)
                if (unique[:, 0] == number).any()
            ]
            import torch

            from legenda.regions import Regions

            return Regions.stack(parts)[torch.from_numpy(row.reshape(-1))]

        return read


def read_regions(store: FeatureStore, positions: np.ndarray) -> Regions:
    """Return the Regions of the images at these positions of a store."""
    from legenda.regions import Regions

    packed = store.read(positions)
    return Regions.from_numpy(packed.features, packed.boxes, packed.mask)
