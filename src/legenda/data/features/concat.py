"""Several feature stores read as one, for questions and expressions about images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from legenda.data.features.base import FeatureStore
from legenda.data.features.detections import DetectionStore
from legenda.data.features.identity import extractor_name, is_same_extractor
from legenda.data.features.open import open_features
from legenda.errors import DataError

if TYPE_CHECKING:
    from legenda.regions import Regions

RegionReader = Callable[[np.ndarray], "Regions"]
"""A function from positions in a split `(B,)` to the Regions of their images."""


@dataclass(frozen=True, eq=False)
class ConcatFeatureStore:
    """One or more feature stores of one extractor, read as one."""

    stores: tuple[FeatureStore, ...]

    @staticmethod
    def open(paths: Sequence[Path]) -> ConcatFeatureStore:
        """Open the stores, each of which may also be an .npz of detections.

        DataError where there is none, or the features of two do not fit each other.
        """
        if not paths:
            raise DataError("no features are named; name stores written by `legenda extract` or `legenda convert`")
        stores = tuple(DetectionStore(path) if _is_npz(path) else open_features(path) for path in paths)
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

        An image is known by its id in a store or by COCO's number: "9" is also COCO_train2014_000000000009.
        DataError for one that no store has.
        """
        slots = np.array([self._find(image) for image in images], np.int64).reshape(-1, 2)

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

    def _find(self, image: str) -> tuple[int, int]:
        """Return the number of the store of an image and its position there."""
        for number, store in enumerate(self.stores):
            if image in store:
                return number, store.index(image)
        if image in self._coco:
            return self._coco[image]
        raise DataError(f"{self.source} holds no features of image '{image}'; extract that image too")

    @cached_property
    def _coco(self) -> dict[str, tuple[int, int]]:
        """Store and position of images by COCO's number, which ends their id."""
        found: dict[str, tuple[int, int]] = {}
        for number, store in enumerate(self.stores):
            for position, image in enumerate(store.ids):
                digits = image.rpartition("_")[2]
                if digits.isdecimal():
                    found.setdefault(str(int(digits)), (number, position))
        return found


def _is_npz(path: Path) -> bool:
    return path.suffix == ".npz" and path.is_file()


def _boxed(store: FeatureStore) -> str:
    return f"with{'' if store.has_boxes else 'out'} boxes"


def read_regions(store: FeatureStore, positions: np.ndarray) -> Regions:
    """Return the Regions of the images at these positions of a store."""
    from legenda.regions import Regions

    packed = store.read(positions)
    return Regions.from_numpy(packed.features, packed.boxes, packed.mask)
