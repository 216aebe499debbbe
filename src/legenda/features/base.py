"""Feature stores: their interface, the identity of what made the features, and what makes regions valid.

Several are read as one, in which one rule finds the images of a data set.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from legenda.errors import DataError, first_line

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
        if not self.fingerprint or len(self.fingerprint) != len(other.fingerprint):
            return f"is {other.name}, whose features were not compared"
        if self.feature_dim != other.feature_dim:
            return f"returns {other.feature_dim} channels, not {self.feature_dim}"
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


ImageRegions = tuple[np.ndarray, np.ndarray | None]
"""The features (n, D) and boxes (n, 4) of an image, x1 y1 x2 y2 in 0..1, or None."""
Image = tuple[str, np.ndarray, np.ndarray | None]
"""The id of an image, its features and its boxes."""


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


class FeatureStore(ABC):
    """The stored regions of many images: read lazily, in any order, from several threads or processes.

    A store is cheap to pickle: a worker process opens the file anew.

    path: the file or folder, for messages. ids: the images, in the order of their positions.
    extractor: the name of what made the features.
    Raise DataError where an image occurs twice.
    """

    feature_dim: int = 0
    """The width D of a region's feature vector."""
    has_boxes: bool
    """Whether the regions come with boxes."""
    threads: ClassVar[int] = 1
    """How many images of a batch are read at once, where reading does not hold the interpreter."""
    remedy: ClassVar[str] = "repair it or create the file again"

    def __init__(self, path: Path, ids: Iterable[str], extractor: str = UNNAMED) -> None:
        self.path, self.ids, self.extractor = path, tuple(ids), extractor
        self._positions = {image: position for position, image in enumerate(self.ids)}
        if len(self._positions) != len(self.ids):
            twice = next(image for position, image in enumerate(self.ids) if self._positions[image] != position)
            raise DataError(f"{path} holds image '{twice}' twice; leave one of them out")

    @abstractmethod
    def load(self, position: int) -> ImageRegions:
        """Return features and boxes as they are stored, not validated; raise any exception if they are damaged."""

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

    def read(self, images: Sequence[str] | Sequence[int] | np.ndarray) -> RegionArrays:
        """Return images by id or position, in the given order, with repeats.

        Raise DataError, naming the image, for one that is not there, and for regions that are damaged or not valid.
        """
        positions = np.array([self.index(image) if isinstance(image, str) else image for image in images], np.int64)
        if ((positions < 0) | (positions >= len(self))).any():
            raise DataError(f"{self.path} has {len(self)} images; ask for positions from 0 to {len(self) - 1} only")
        return pack(self._read(positions.tolist()), self.feature_dim, self.has_boxes)

    def images(self, chosen: Sequence[int] | None = None) -> Iterator[Image]:
        """Yield every image, or those at the chosen positions, without padding; raise DataError for a faulty one."""
        chosen = range(len(self)) if chosen is None else chosen
        for first in range(0, len(chosen), _BATCH):
            positions = chosen[first : first + _BATCH]
            for position, regions in zip(positions, self._read(positions), strict=True):
                yield self.ids[position], *regions

    def _read(self, positions: Sequence[int]) -> list[ImageRegions]:
        if self.threads == 1 or len(positions) < 2:
            return [self.read_valid(position) for position in positions]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(self.read_valid, positions))

    def read_valid(self, position: int) -> ImageRegions:
        """Return the features, float16 or float32, and boxes of an image; raise DataError where they are not valid."""
        try:
            features, boxes = self.load(position)
        except DataError:
            raise
        except Exception as error:  # readers of damaged files raise exceptions of any type
            raise self._fault(position, f"cannot be read ({first_line(error)})", self.remedy) from error
        try:
            features, boxes = check_regions(features, boxes)
        except ValueError as fault:
            raise self._fault(position, f"has {fault}", self.remedy) from None
        if self.feature_dim and features.shape[1] != self.feature_dim:
            fault = f"has features of width {features.shape[1]}, but the first image {self.feature_dim}"
        elif self.feature_dim and (boxes is not None) != self.has_boxes:
            fault = f"has {'no ' if boxes is None else ''}boxes, unlike the first image"
        else:
            return features, boxes
        raise self._fault(position, fault, "a store holds features of one extractor")

    def _fault(self, position: int, fault: str, remedy: str) -> DataError:
        return DataError(f"{self.path}: image '{self.ids[position]}' {fault}; {remedy}")


def pack(regions: Sequence[ImageRegions], feature_dim: int, has_boxes: bool) -> RegionArrays:
    """Return the regions of several images as one batch, padded with zeros."""
    counts = np.array([len(features) for features, _ in regions], np.int64)
    mask = np.arange(counts.max(initial=0)) < counts[:, None]
    halves = bool(regions) and all(features.dtype == np.float16 for features, _ in regions)
    features = np.empty((*mask.shape, feature_dim), np.float16 if halves else np.float32)
    boxes = np.zeros((*mask.shape, 4), np.float32) if has_boxes else None
    for row, (image_features, image_boxes) in enumerate(regions):
        features[row, : len(image_features)] = image_features
        features[row, len(image_features) :] = 0
        if boxes is not None:
            boxes[row, : len(image_features)] = image_boxes
    return RegionArrays(features, boxes, mask)


def check_regions(features: np.ndarray, boxes: np.ndarray | None, dtype: np.dtype | None = None) -> ImageRegions:
    """Return the features (n, D) of an image in a dtype, and its boxes (n, 4) in float32, clipped to 0..1.

    dtype: float16 or float32; by default float16 stays, and all else becomes float32. Raise ValueError with what is
    wrong with types, shapes or values, as the end of a sentence about the image.
    """
    features = np.asarray(features)
    require_real(features)
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(
            f"features of shape {features.shape}, where (regions, width) with at least one region is needed"
        )
    if dtype is None:
        dtype = np.dtype(np.float16 if features.dtype == np.float16 else np.float32)
    if features.dtype == np.float16:
        bits = features.reshape(-1).view(np.uint16)  # np.isfinite takes five times as long
        blocks = (bits[start : start + _BLOCK] for start in range(0, bits.size, _BLOCK))
        if any((block & 0x7FFF).max() >= _HALF_INFINITY for block in blocks):
            raise ValueError("features that are NaN or infinite")
    else:
        worst = np.maximum(-float(features.min()), float(features.max()))  # NaN wins every minimum and maximum
        limit = min(float(np.finfo(dtype).max), _LARGEST)
        if not np.isfinite(worst):
            raise ValueError("features that are NaN or infinite")
        if worst > limit:
            raise ValueError(f"features as large as {worst:g}, where the limit is {limit:g}")
    features = features.astype(dtype, copy=False)
    if boxes is None:
        return features, None
    require_real(np.asarray(boxes))
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows leaves 0..1
        boxes = np.asarray(boxes, np.float32)
    if boxes.shape != (len(features), 4):
        raise ValueError(f"boxes of shape {boxes.shape} for {len(features)} regions")
    low, high = boxes.min(), boxes.max()
    if not (low >= -_BOX_TOLERANCE and high <= 1 + _BOX_TOLERANCE):
        inside = ((boxes >= -_BOX_TOLERANCE) & (boxes <= 1 + _BOX_TOLERANCE)).all(1)
        raise ValueError(f"the box {boxes[~inside][0].tolist()}, which leaves 0..1")
    cut = boxes if low >= 0 and high <= 1 else boxes.clip(0, 1)
    filled = (cut[:, 2:] > cut[:, :2]).all(1)
    if not filled.all():
        raise ValueError(f"the box {boxes[~filled][0].tolist()}, which is empty (x1 < x2 and y1 < y2 are needed)")
    return features, cut


def require_real(values: np.ndarray) -> None:
    """Raise ValueError for values that are no real numbers: complex numbers, text, dates, objects."""
    if values.dtype.kind not in "fiub":
        raise ValueError(f"values of type {values.dtype}, where real numbers are needed")


def grid_boxes(height: int, width: int) -> np.ndarray:
    """Return the boxes (height * width, 4) of the cells of a grid in row-major order, x1 y1 x2 y2 in 0..1."""
    y, x = np.divmod(np.arange(height * width), width)
    corners = [x / width, y / height, (x + 1) / width, (y + 1) / height]
    return np.stack(corners, axis=1).astype(np.float32)


RegionReader = Callable[[np.ndarray], "Regions"]
"""A function from positions in a split `(B,)` to the Regions of their images."""

_COCO = re.compile(r"(?:COCO_[a-z]+[0-9]{4}_)?([0-9]{12})")
"""COCO's names of images: COCO_train2014_000000000009, and 000000000009 since 2017."""


def coco_number(name: str) -> str | None:
    """Return the number of an image as text in COCO's name for it, without zeros in front; None for another name."""
    match = _COCO.fullmatch(name)
    return None if match is None else str(int(match[1]))


class ConcatFeatureStore:
    """One or more feature stores of one extractor, read as one; one rule for names finds their images.

    source: the stores' paths, for messages.
    """

    def __init__(self, stores: Sequence[FeatureStore]) -> None:
        first = stores[0]
        self.stores, self.source = stores, ", ".join(str(store.path) for store in stores)
        self.feature_dim, self.has_boxes, self.extractor = first.feature_dim, first.has_boxes, first.extractor

    def find(self, image: str, file: str = "") -> tuple[int, int] | None:
        """Return the number of the store of an image and its position there, None where no store has it.

        An image is found under its id; else under its file's name without suffix; else, where its id is a number, under
        COCO's name with that number. file: the path or name of its file, where it is known. Raise DataError where two
        entries fit equally well.
        """
        entries: list[tuple[int, int]] = []
        for name in dict.fromkeys((image, PurePosixPath(file).stem)):
            entries = entries or [(n, store.index(name)) for n, store in enumerate(self.stores) if name in store]
        entries = entries or self._by_number.get(image, [])
        if len(entries) > 1:
            first, second = (f"{self.stores[n].path} ('{self.stores[n].ids[i]}')" for n, i in entries[:2])
            raise DataError(f"image '{image}' may be that of {first} or of {second}; leave one of them out")
        return entries[0] if entries else None

    @cached_property
    def _by_number(self) -> dict[str, list[tuple[int, int]]]:
        """Stores and positions of images by COCO's number."""
        numbers = defaultdict[str, list[tuple[int, int]]](list)
        for number, store in enumerate(self.stores):
            for position, name in enumerate(store.ids):
                if (digits := coco_number(name)) is not None:
                    numbers[digits].append((number, position))
        return numbers

    def reader(self, images: Sequence[str], files: Sequence[str] = ()) -> RegionReader:
        """Return a reader of the regions of these images by their positions in `images`.

        files: the path or name of each image's file, where they are known. Raise DataError, naming one, for images that
        no store has under a name of `find`, and for two images that one entry fits.
        """
        names = list(zip_longest(images, files, fillvalue=""))
        entries = [self.find(image, file) for image, file in names]
        missing = [file or image for (image, file), entry in zip(names, entries, strict=True) if entry is None]
        if missing:
            raise DataError(
                f"{self.source} lacks image '{missing[0]}', and {len(missing)} of {len(names)} in all; extract them too"
            )
        owners: dict[Any, str] = {}
        for image, entry in zip(images, entries, strict=True):
            other = owners.setdefault(entry, image)
            if other != image:
                raise DataError(
                    f"images '{other}' and '{image}' both have the name of one entry of {self.source}; store each "
                    "under its id"
                )
        slots = np.array(entries, np.int64).reshape(-1, 2)

        def read(positions: np.ndarray) -> Regions:
            from legenda.regions import Regions

            if len(self.stores) == 1:
                arrays = self.stores[0].read(slots[positions, 1])
            else:
                valid = [self.stores[number].read_valid(position) for number, position in slots[positions].tolist()]
                arrays = pack(valid, self.feature_dim, self.has_boxes)
            return Regions.from_numpy(arrays.features, arrays.boxes, arrays.mask)

        return read
