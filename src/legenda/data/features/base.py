"""The interface of feature stores, and the arrays of regions that they return."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


UNNAMED = "unnamed"
"""The extractor of a file without the name of one."""

_BATCH = 64
"""Images that `check` reads at once."""


class FeatureStore(ABC):
    """The stored regions of many images: read lazily, in any order, from several threads or processes.

    A store is cheap to pickle: a worker process opens the file anew.

    path: the file or folder, for messages. ids: the images, in the order of their positions.
    extractor: the name of what made the features.
    Raise DataError where an image occurs twice.
    """

    def __init__(self, path: Path, ids: Iterable[str], extractor: str = UNNAMED) -> None:
        self.path, self.ids, self.extractor = path, tuple(ids), extractor
        self._positions = {image: position for position, image in enumerate(self.ids)}
        if len(self._positions) != len(self.ids):
            twice = next(image for position, image in enumerate(self.ids) if self._positions[image] != position)
            raise DataError(f"{path} holds image '{twice}' twice; leave one of them out")

    @property
    @abstractmethod
    def feature_dim(self) -> int:
        """Return the width D of a region's feature vector."""

    @property
    @abstractmethod
    def has_boxes(self) -> bool:
        """Return whether the regions come with boxes."""

    @abstractmethod
    def read(self, images: Sequence[str] | Sequence[int] | np.ndarray) -> RegionArrays:
        """Return images by id or position, in the given order; raise DataError naming what cannot be read."""

    @abstractmethod
    def __reduce__(self) -> tuple[Any, ...]: ...

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

    def check(self) -> None:
        """Read everything once; raise DataError naming the first faulty image."""
        for first in range(0, len(self), _BATCH):
            self.read(range(first, min(first + _BATCH, len(self))))
