"""Finished pieces of an extraction, kept beside the file to be so that a stopped one goes on where it was."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from legenda.errors import UserError
from legenda.features.packed import PackedFeatureStore
from legenda.features.writer import write_store
from legenda.io import read_json, write_json

Image = tuple[str, np.ndarray, np.ndarray | None]


class Parts:
    """The pieces of one extraction into `out`, in a hidden folder beside it that is there only while it is unfinished.

    A piece holds features and, in a list beside them, which file each image was when it was read: one that has changed
    since, in size or time, is not taken from here.
    Raises UserError when the pieces are another extractor's.
    """

    def __init__(self, out: Path, extractor: str) -> None:
        self._out, self._extractor = out, extractor
        self._folder = out.with_name(f".{out.name}.parts")
        self._stores: list[PackedFeatureStore] = []
        self._places: dict[str, PackedFeatureStore] = {}
        self._marks: dict[str, list[int]] = {}
        for path in sorted(self._folder.glob("*.json")):
            listed = read_json(path, f"remove {self._folder}")
            store = PackedFeatureStore.open(path.with_suffix(".safetensors"))
            if store.extractor != extractor:
                raise UserError(
                    f"{self._folder} holds an unfinished extraction by {store.extractor}, not {extractor}; remove it "
                    "or name another file"
                )
            self._take(store, listed)

    def __contains__(self, path: Path) -> bool:
        """Whether the regions of that picture, as it is now, are here."""
        return path.stem in self._marks and path.exists() and self._marks[path.stem] == _mark(path)

    def add(self, images: Sequence[Image], paths: Sequence[Path]) -> None:
        """Keeps the regions of these pictures."""
        last = max((int(store.path.stem) for store in self._stores), default=-1)
        piece = self._folder / f"{last + 1:06d}.safetensors"
        # in full precision: the file to be is rounded once
        write_store(piece, images, extractor=self._extractor, dtype="float32", called=self._out)
        listed = {path.stem: _mark(path) for path in paths}
        write_json(piece.with_suffix(".json"), listed)
        self._take(PackedFeatureStore.open(piece), listed)

    @property
    def like(self) -> tuple[int, bool] | None:
        """The width of the features that are here and whether they have boxes; None where there are none."""
        return (self._stores[0].feature_dim, self._stores[0].has_boxes) if self._stores else None

    def read(self, image: str) -> Image:
        """One image's regions."""
        packed = self._places[image].read([image])
        return image, packed.features[0], None if packed.boxes is None else packed.boxes[0]

    def remove(self) -> None:
        """Forgets everything; the folder is gone."""
        self._stores.clear()
        self._places.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _take(self, store: PackedFeatureStore, listed: dict[str, Any]) -> None:
        self._stores.append(store)
        self._places.update(dict.fromkeys(store.ids, store))
        self._marks.update(listed)


def _mark(path: Path) -> list[int]:
    about = path.stat()
    return [about.st_size, about.st_mtime_ns]
