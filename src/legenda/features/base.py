"""The interface of feature stores, and the arrays of regions that they return."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from legenda.errors import DataError


@dataclass(frozen=True, eq=False)
class RegionArrays:
    """The regions of B images, padded with zeros to the same number N.

    features: (B, N, D), float16 or float32 as stored; boxes: (B, N, 4) float32, x1 y1 x2 y2 in 0..1, or None;
    mask: (B, N) bool, True = real.
    """

    features: np.ndarray
    boxes: np.ndarray | None
    mask: np.ndarray


class FeatureStore(Protocol):
    """The stored regions of many images: read lazily, in any order, from several threads or processes.

    A store is cheap to pickle: a worker process opens the file anew.
    """

    @property
    def path(self) -> Path:
        """Return the file or folder, for messages."""
        ...

    @property
    def ids(self) -> Sequence[str]:
        """Return the images, in the order of their positions."""
        ...

    @property
    def extractor(self) -> str:
        """Return the name of what made the features; "unnamed" where the file has none."""
        ...

    @property
    def feature_dim(self) -> int:
        """Return the width D of a region's feature vector."""
        ...

    @property
    def has_boxes(self) -> bool:
        """Return whether the regions come with boxes."""
        ...

    def __len__(self) -> int: ...

    def __contains__(self, image: object) -> bool: ...

    def index(self, image: str) -> int:
        """Return the position of an image; DataError when it is not there."""
        ...

    def read(self, images: Sequence[str] | Sequence[int] | np.ndarray) -> RegionArrays:
        """Return images by id or position, in the given order; raise DataError naming what cannot be read."""
        ...

    def check(self) -> None:
        """Read everything once; raise DataError naming the first faulty image."""
        ...


UNNAMED = "unnamed"
"""The extractor of a file without the name of one."""


def find_positions(images: Sequence[str] | Sequence[int] | np.ndarray, store: FeatureStore) -> np.ndarray:
    """Return the positions of images by id or position; raise DataError for one outside the store."""
    positions = np.array([store.index(image) if isinstance(image, str) else image for image in images], np.int64)
    if ((positions < 0) | (positions >= len(store))).any():
        raise DataError(f"{store.path} has {len(store)} images; ask for positions from 0 to {len(store) - 1} only")
    return positions
