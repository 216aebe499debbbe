"""What every feature store offers, and the regions it gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from legenda.errors import UserError


@dataclass(frozen=True, eq=False)
class RegionArrays:
    """The regions of B images, padded with zeros to the N regions of the richest.

    features: (B, N, D), float16 or float32 as they are stored; boxes: (B, N, 4) float32, x1 y1 x2 y2 in 0..1, or None;
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
        """The file or folder, for messages."""
        ...

    @property
    def ids(self) -> Sequence[str]:
        """The images, in the order of their positions."""
        ...

    @property
    def extractor(self) -> str:
        """The name of what made the features; "unnamed" where a file does not say."""
        ...

    @property
    def feature_dim(self) -> int:
        """The width D of a region's feature vector."""
        ...

    @property
    def has_boxes(self) -> bool:
        """Whether the regions come with boxes."""
        ...

    def __len__(self) -> int: ...

    def __contains__(self, image: object) -> bool: ...

    def index(self, image: str) -> int:
        """The position of an image; UserError when it is not there."""
        ...

    def read(self, images: Sequence[str] | Sequence[int] | np.ndarray) -> RegionArrays:
        """Images by id or by position, in the order given, repeats allowed; UserError names what cannot be read."""
        ...

    def check(self) -> None:
        """Reads everything once; UserError names the first faulty image."""
        ...


UNNAMED = "unnamed"
"""The extractor of a file that does not say who made it."""


def find_positions(images: Sequence[str] | Sequence[int] | np.ndarray, store: FeatureStore) -> np.ndarray:
    """The positions of images given by id or position; UserError for one outside the store."""
    positions = np.array([store.index(image) if isinstance(image, str) else image for image in images], np.int64)
    if ((positions < 0) | (positions >= len(store))).any():
        raise UserError(f"{store.path} has {len(store)} images; ask for positions from 0 to {len(store) - 1} only")
    return positions
