"""Detected boxes as regions, with class and score in place of the detector's features."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from legenda.data.features.base import FeatureStore, RegionArrays
from legenda.data.features.validate import validate_regions
from legenda.errors import DataError
from legenda.io import verified
from legenda.npz import load_arrays

_HINT = "name an .npz with filenames, boxes, classes, scores and count, one row per image"
_KEYS = ("filenames", "boxes", "classes", "scores", "count")


class DetectionStore(FeatureStore):
    """Detections of many images in one .npz, as a feature store.

    The file holds filenames `(P,)`, boxes `(P, N, 4)` as x1 y1 x2 y2 in 0..1, classes `(P, N)`, scores `(P, N)` and
    count `(P,)`, the number of valid detections at the start of each row, at least one. The feature of a region is its
    class as one-hot vector, followed by its score. Raises DataError, naming the file, for arrays that do not fit.
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        arrays = verified(lambda: load_arrays(path), path, _HINT)
        missing = next((key for key in _KEYS if not isinstance(arrays, dict) or key not in arrays), None)
        if missing is not None:
            raise DataError(f"{path} has no array '{missing}'; {_HINT}")
        names, boxes, self._classes, scores, self._count = (arrays[key] for key in _KEYS)
        kinds = names.dtype.kind, boxes.dtype.kind, self._classes.dtype.kind, scores.dtype.kind, self._count.dtype.kind
        if names.ndim != 1 or not len(names) or not re.fullmatch("Uf[iu]f[iu]", "".join(kinds)):
            raise DataError(f"{path} holds arrays of the wrong types, or none; {_HINT}")
        self._boxes, self._scores = boxes.astype(np.float32), scores.astype(np.float32)
        shape = self._classes.shape
        if len(shape) != 2 or boxes.shape != (*shape, 4) or scores.shape != shape or len(names) != shape[0]:
            raise DataError(f"{path} holds arrays whose shapes do not fit each other; {_HINT}")
        if self._count.shape != shape[:1] or not ((self._count >= 1) & (self._count <= shape[1])).all():
            raise DataError(f"{path} has a 'count' outside 1 to {shape[1]}, the detections of a row; {_HINT}")
        super().__init__(path, (PurePosixPath(name).stem for name in names.tolist()), "detections")
        real = self._classes[np.arange(shape[1]) < self._count[:, None]]
        if real.min() < 0:
            raise DataError(f"{path} has a class below 0; {_HINT}")
        self._num_classes = int(real.max()) + 1
        self.check()

    @property
    def feature_dim(self) -> int:
        """Return the number of classes, and one for the score."""
        return self._num_classes + 1

    @property
    def has_boxes(self) -> bool:
        """Return True."""
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return DetectionStore, (self.path,)

    def read(self, images: Sequence[str] | Sequence[int] | np.ndarray) -> RegionArrays:
        """Return the detections of images by id or by position, in the given order."""
        rows = self.positions(images)
        longest = int(self._count[rows].max(initial=0))
        mask = np.arange(longest) < self._count[rows, None]
        features = np.zeros((*mask.shape, self.feature_dim), np.float32)
        real = self._classes[rows, :longest][mask]
        row, slot = mask.nonzero()
        features[row, slot, real] = 1.0
        features[row, slot, -1] = self._scores[rows, :longest][mask]
        return RegionArrays(features, np.where(mask[..., None], self._boxes[rows, :longest], 0.0), mask)

    def check(self) -> None:
        """Validate every detection; raise DataError naming the first image with an invalid one."""
        for position, image in enumerate(self.ids):
            kept = slice(self._count[position])
            fault = validate_regions(self._scores[position, kept, None], self._boxes[position, kept])
            if fault is not None:
                raise DataError(f"{self.path}: image '{image}' has {fault}; {_HINT}")
