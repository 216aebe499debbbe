"""Feature stores: their interface, the identity of what made the features, and what makes regions valid.

ConcatFeatureStore reads several stores as one and finds the images of a data set there.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from legenda.errors import DataError, first_line
from legenda.images.extractor import UNNAMED, ExtractorIdentity, ImageRegions, RegionArrays, check_regions, pack
from legenda.io import coco_number
from legenda.terminal import counted

if TYPE_CHECKING:
    from legenda.regions import Regions


Image = tuple[str, np.ndarray, np.ndarray | None]
"""The id of an image, its features and its boxes."""


_BATCH = 64
"""Number of images that `FeatureStore.images` reads at once."""


class FeatureStore(ABC):
    """The stored regions of many images: read lazily, in any order, from several threads or processes.

    A store is cheap to pickle: a worker process opens the file anew.

    path: the file or folder, for messages. ids: the images, in the order of their positions.
    extractor: the identity of what made the features, in any of its forms.
    Raise DataError where an image occurs twice, and for an identity that is none.
    """

    feature_dim: int = 0
    """The width D of a region's feature vector."""
    has_boxes: bool
    """Whether the regions come with boxes."""
    threads: ClassVar[int] = 1
    """Number of threads that read a batch; above 1 where reading releases the interpreter's lock."""
    data: str = ""
    """Digest of the data set that the images come from; empty where the store is not bound to one."""
    remedy: ClassVar[str] = "repair it or create the file again"
    """End of the message about an image that cannot be read."""

    def __init__(
        self,
        path: Path,
        ids: Iterable[str],
        extractor: ExtractorIdentity | Mapping[str, object] | str = UNNAMED,
    ) -> None:
        self.path, self.ids, self.extractor = path, tuple(ids), ExtractorIdentity.read(extractor, path)
        self._positions = {image: position for position, image in enumerate(self.ids)}
        if len(self._positions) != len(self.ids):
            twice = next(image for position, image in enumerate(self.ids) if self._positions[image] != position)
            raise DataError(f"{path} holds image '{twice}' twice; leave one of them out")

    @abstractmethod
    def load(self, position: int) -> ImageRegions:
        """Return features and boxes as they are stored, not validated; raise any exception if they are damaged."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path,)

    def stored_checksums(self, positions: np.ndarray) -> np.ndarray:  # noqa: ARG002 - of the base class
        """Return the checksums of images that the file holds, or an empty array."""
        return np.empty(0, np.int64)

    def verify(self, position: int) -> None:  # noqa: B027 - most formats have no checksums
        """Raise DataError where an image differs from the checksum that its file holds of it."""

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
            raise DataError(
                f"{self.path} has {counted(len(self), 'images')}; ask for positions from 0 to {len(self) - 1} only"
            )
        return pack(self._read(positions.tolist()), self.feature_dim, self.has_boxes)

    def images(self, positions: Sequence[int] | None = None) -> Iterator[Image]:
        """Yield the images at the positions, by default all, without padding; raise DataError for a faulty one."""
        positions = range(len(self)) if positions is None else positions
        for first in range(0, len(positions), _BATCH):
            batch = positions[first : first + _BATCH]
            for position, regions in zip(batch, self._read(batch), strict=True):
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


RegionReader = Callable[[np.ndarray], "Regions"]
"""A function from positions in a split `(B,)` to the Regions of their images."""


@dataclass(frozen=True)
class DigestedReader:
    """A reader of regions, and a function that returns a digest of a sample of what it reads."""

    read: RegionReader
    digest: Callable[[], str]

    def __call__(self, positions: np.ndarray) -> Regions:
        """Return the regions of the images at these positions."""
        return self.read(positions)


_DIGESTED_BYTES = 1 << 25
_DIGESTED_IMAGES = 32
"""The digest of features covers so many bytes and so many images at least, or all."""


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
        entries = self._entries(image) or self._entries(PurePosixPath(file).stem) or self._by_number.get(image, [])
        if len(entries) > 1:
            first, second = (f"{self.stores[n].path} ('{self.stores[n].ids[i]}')" for n, i in entries[:2])
            raise DataError(f"image '{image}' may be that of {first} or of {second}; leave one of them out")
        return entries[0] if entries else None

    def _entries(self, name: str) -> list[tuple[int, int]]:
        return [(number, store.index(name)) for number, store in enumerate(self.stores) if name in store]

    @cached_property
    def _by_number(self) -> dict[str, list[tuple[int, int]]]:
        """Stores and positions of images by COCO's number."""
        numbers = defaultdict[str, list[tuple[int, int]]](list)
        for number, store in enumerate(self.stores):
            for position, name in enumerate(store.ids):
                if (digits := coco_number(name)) is not None:
                    numbers[digits].append((number, position))
        return numbers

    def reader(self, images: Sequence[str], files: Sequence[str] = ()) -> DigestedReader:
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
        owners: dict[object, str] = {}
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

        return DigestedReader(read, partial(self._digest, slots))

    def _digest(self, slots: np.ndarray) -> str:
        """Return a digest of all checksums that the stores hold, and of the values of a sample of the images."""
        digest, covered, count = hashlib.sha256(), 0, 0
        for number, store in enumerate(self.stores):
            digest.update(store.stored_checksums(slots[slots[:, 0] == number, 1]).tobytes())
        order = np.random.default_rng(0).permutation(len(slots)).tolist()  # so that any part of the images is sampled
        for number, position in slots[order].tolist():
            features, boxes = self.stores[number].read_valid(position)
            digest.update(features.tobytes() + (b"" if boxes is None else boxes.tobytes()))
            covered, count = covered + features.nbytes, count + 1
            if covered > _DIGESTED_BYTES and count >= _DIGESTED_IMAGES:
                break
        return f"values of {count} of {len(slots)} images, sha256 {digest.hexdigest()[:16]}"
