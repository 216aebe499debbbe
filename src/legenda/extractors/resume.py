"""Finished shards of an extraction, stored until it is complete, so that a stopped one can be resumed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from legenda.data.features.identity import extractor_name, is_same_extractor
from legenda.data.features.packed import PackedFeatureStore, write_store
from legenda.errors import DataError
from legenda.io import read_json, write_json

StoredImage = tuple[str, np.ndarray, np.ndarray | None]


class ShardCache:
    """The shards of one unfinished extraction into `out`, in a hidden folder next to it.

    A shard is a feature store and a JSON file with the size and modification time of each image file, in the order of
    the store's ids; images that have changed since are not in the cache. Raises DataError when the shards are those of
    another extractor.
    """

    def __init__(self, out: Path, extractor: str) -> None:
        self._out, self._extractor = out, extractor
        self._folder = out.with_name(f".{out.name}.parts")
        self._stores: list[PackedFeatureStore] = []
        self._store_of: dict[str, PackedFeatureStore] = {}
        self._stats: dict[str, Any] = {}
        for path in sorted(self._folder.glob("*.json")):
            stats = read_json(path, hint := f"remove {self._folder}")
            store = PackedFeatureStore(path.with_suffix(".safetensors"))
            if not isinstance(stats, list) or len(stats) != len(store):
                raise DataError(f"{path} holds no sizes and times of the {len(store)} image files; {hint}")
            if not is_same_extractor(store.extractor, extractor):
                raise DataError(
                    f"{self._folder} holds an unfinished extraction by {extractor_name(store.extractor)}, not "
                    f"{extractor_name(extractor)}; remove it or name another file"
                )
            self._add_store(store, stats)

    def __contains__(self, path: Path) -> bool:
        """Return whether the cache holds the regions of the image file in its present state."""
        return path.stem in self._stats and path.exists() and self._stats[path.stem] == _stat(path)

    def add(self, images: Sequence[StoredImage], paths: Sequence[Path]) -> None:
        """Write the regions of these images as a new shard."""
        last = max((int(store.path.stem) for store in self._stores), default=-1)
        path = self._folder / f"{last + 1:06d}.safetensors"
        # float32: the features are rounded once, when the final store is written
        write_store(path, images, extractor=self._extractor, dtype="float32", name_in_errors=self._out)
        stats = [_stat(path) for path in paths]
        write_json(path.with_suffix(".json"), stats)
        self._add_store(PackedFeatureStore(path), stats)

    @property
    def layout(self) -> tuple[int, bool] | None:
        """The width of the cached features and whether they have boxes; None for an empty cache."""
        return (self._stores[0].feature_dim, self._stores[0].has_boxes) if self._stores else None

    def read(self, image: str) -> StoredImage:
        """Return the id and regions of one image."""
        arrays = self._store_of[image].read([image])
        return image, arrays.features[0], None if arrays.boxes is None else arrays.boxes[0]

    def remove(self) -> None:
        """Delete the cache with its folder."""
        self._stores.clear()
        self._store_of.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _add_store(self, store: PackedFeatureStore, stats: list[Any]) -> None:
        self._stores.append(store)
        self._store_of.update(dict.fromkeys(store.ids, store))
        self._stats.update(zip(store.ids, stats, strict=True))


def _stat(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]
