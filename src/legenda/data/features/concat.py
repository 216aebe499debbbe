"""Several feature stores read as one, and the rule by which images of a data set are found in stores."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from legenda.data.features.base import FeatureStore, extractor_name, is_same_extractor
from legenda.data.features.readers import open_features
from legenda.errors import DataError

if TYPE_CHECKING:
    from legenda.regions import Regions

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

    @staticmethod
    def open(paths: Sequence[Path]) -> ConcatFeatureStore:
        """Open the stores; raise DataError where there is none, or the features of two do not fit each other."""
        if not paths:
            raise DataError("no features are named; name stores written by `legenda extract` or `legenda convert`")
        stores = tuple(open_features(path) for path in paths)
        first = stores[0]
        for store in stores[1:]:
            same_layout = (store.feature_dim, store.has_boxes) == (first.feature_dim, first.has_boxes)
            if not same_layout or not is_same_extractor(first.extractor, store.extractor):
                raise DataError(
                    f"{store.path} has features of width {store.feature_dim} {_boxed(store)} by "
                    f"{extractor_name(store.extractor)}, but {first.path} of width {first.feature_dim} {_boxed(first)} "
                    f"by {extractor_name(first.extractor)}; name stores of one extractor"
                )
        return ConcatFeatureStore(stores)

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

    def reader(self, images: Sequence[str]) -> RegionReader:
        """Return a reader of the regions of these images by their positions in `images`.

        DataError for one that no store has under a name of `ImageIndex`.
        """
        index = ImageIndex(self.stores)
        entries = [index.find(image) for image in images]
        if None in entries:
            image = images[entries.index(None)]
            raise DataError(f"{self.source} holds no features of image '{image}'; extract that image too")
        slots = np.array(entries, np.int64).reshape(-1, 2)

        def read(positions: np.ndarray) -> Regions:
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


def _boxed(store: FeatureStore) -> str:
    return f"with{'' if store.has_boxes else 'out'} boxes"


def read_regions(store: FeatureStore, positions: np.ndarray) -> Regions:
    """Return the Regions of the images at these positions of a store."""
    from legenda.regions import Regions

    packed = store.read(positions)
    return Regions.from_numpy(packed.features, packed.boxes, packed.mask)
