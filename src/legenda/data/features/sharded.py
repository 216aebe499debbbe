"""Folders of feature stores that `legenda extract --engine ray` writes, one for each shard of its job."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from legenda.data.features.base import FeatureStore, RegionArrays
from legenda.data.features.packed import PackedFeatureStore
from legenda.data.features.per_image import pack
from legenda.errors import DataError
from legenda.io import get_field, read_json, read_text

MANIFEST = "manifest.json"
_HINT = "name a folder that legenda extract --engine ray has written"
_MAX_OPEN = 128
"""Shards whose files are open at once."""


class ShardedStore(FeatureStore):
    """The shards of one finished job, read as one store in the order of its listing.

    Raise DataError where the folder is no job of features, or shards are missing or differ.
    """

    def __init__(self, path: Path, sizes_file: Path | None = None) -> None:  # noqa: ARG002 - boxes are relative
        manifest = read_json(path / MANIFEST, _HINT)
        if get_field(manifest, "kind", str, str(path / MANIFEST), _HINT) != "features":
            raise DataError(f"{path} holds {manifest['kind']}, not features; {_HINT}")
        images, size = (get_field(manifest, key, int, str(path / MANIFEST), _HINT) for key in ("images", "shard_size"))
        done, count = len(list(path.glob("features-*.jsonl"))), -(-images // max(size, 1))
        if done != count:
            raise DataError(f"{path} holds {done} of {count} shards; call legenda extract again to complete it")
        for lines in path.glob("features-*.jsonl"):
            if not lines.with_suffix(".safetensors").exists() and '"regions":' in read_text(lines, _HINT):
                raise DataError(f"{lines.with_suffix('.safetensors')} is missing; delete {lines} and extract again")
        self._files = sorted(path.glob("features-*.safetensors"))
        if not self._files:
            raise DataError(f"{path} holds no features of any image; see the errors in its .jsonl files")
        self._open = lru_cache(_MAX_OPEN)(PackedFeatureStore)
        ids: list[str] = []
        starts: list[int] = []
        for file in self._files:
            store = self._open(file)
            if (store.feature_dim, store.has_boxes) != (self.feature_dim, self.has_boxes):
                raise DataError(f"{file} has features of another layout than {self._files[0]}; extract it again")
            starts.append(len(ids))
            ids += store.ids
        self._starts = np.array(starts)
        super().__init__(path, ids, self._first.extractor)

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardedStore, (self.path,)

    @property
    def _first(self) -> PackedFeatureStore:
        return self._open(self._files[0])

    @property
    def feature_dim(self) -> int:
        """Return the width D of a region's feature vector."""
        return self._first.feature_dim

    @property
    def has_boxes(self) -> bool:
        """Return whether the regions come with boxes."""
        return self._first.has_boxes

    def read(self, images: Sequence[str] | Sequence[int] | np.ndarray) -> RegionArrays:
        """Return images by id or position, in the given order; raise DataError naming what cannot be read."""
        positions = self.positions(images)
        shards = np.searchsorted(self._starts, positions, side="right") - 1
        found: dict[int, tuple[np.ndarray, np.ndarray | None]] = {}
        for shard in np.unique(shards).tolist():
            rows = np.flatnonzero(shards == shard)
            arrays = self._open(self._files[shard]).read(positions[rows] - self._starts[shard])
            for index, row in enumerate(rows.tolist()):
                real = arrays.mask[index]
                boxes = None if arrays.boxes is None else arrays.boxes[index][real]
                found[row] = arrays.features[index][real], boxes
        return pack([found[row] for row in range(len(positions))], self.feature_dim, self.has_boxes)
