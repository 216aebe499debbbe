"""HDF5 files with data sets named after images, as in the grid and region files of M2, RSTNet, DLCT and MD-SAN.

<id>_grids      (H, W, D), or (H * W, D) of a square grid     features of a grid, in row-major order
<id>_features   (n, D)     features of regions; of a 7 x 7 grid where all images have 49 and none has boxes
<id>_boxes      (n, 4)     x1 y1 x2 y2 in pixels, or in 0..1
<id>_size       (2,)       height and width of the image in pixels
"""

from __future__ import annotations

import math
import os
import threading
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from legenda.data.features.base import UNNAMED
from legenda.data.features.per_image import PerImageStore, scale_boxes
from legenda.data.features.validate import grid_boxes
from legenda.errors import DataError, import_extra
from legenda.io import MAX_BYTES, verified

KINDS = ("grids", "features")
WRITTEN_BY_LEGENDA = "legenda"
"""The attribute of files that `legenda convert` wrote, in which features without boxes have none."""
_WANTED = "name an HDF5 file with data sets such as 42_features or 42_grids"
_MAX_CHUNKS = 10_000
"""Chunks of one data set; HDF5 takes 4 kB for each, even where they hold no values."""
_SAMPLE = 8
"""Images whose shapes are compared to distinguish a grid of 49 cells from 49 regions."""


class Hdf5Store(PerImageStore):
    """An HDF5 file; where it holds both kinds, `file.hdf5:grids` or `file.hdf5:features` chooses."""

    def __init__(self, path: Path, sizes_file: Path | None = None) -> None:
        h5py = import_extra("h5py", "formats")

        file_path, kind = split_kind(path)
        self._file: Any = verified(lambda: h5py.File(file_path, "r", rdcc_nbytes=0), file_path, _WANTED)
        self._locks: dict[int, threading.Lock] = {}
        names = verified(lambda: _find_names(self._file), file_path, _WANTED)
        found = {kind: _with_ending(names, f"_{kind}") for kind in KINDS}
        if kind is None:
            held = [kind for kind in KINDS if found[kind]]
            if len(held) == 2:
                raise DataError(f"{path} holds both grids and features; choose with {path}:grids or {path}:features")
            kind = held[0] if held else KINDS[1]
        self._kind = kind
        self._boxed, self._sized = (frozenset(_with_ending(names, ending)) for ending in ("_boxes", "_size"))
        extractor = verified(lambda: self._file.attrs.get("extractor", UNNAMED), file_path, _WANTED)
        if not isinstance(extractor, str):
            raise DataError(f"{file_path} has an 'extractor' that is not text; give it the name of the extractor")
        super().__init__(path, found[kind], extractor=extractor, sizes_file=sizes_file, wanted=_WANTED)

    @property
    def _lock(self) -> threading.Lock:
        """The lock of this process; that of its parent may be held at the fork."""
        return self._locks.setdefault(os.getpid(), threading.Lock())

    def _load(self, image: str) -> tuple[np.ndarray, np.ndarray | None]:
        features = self._array(image, self._kind)
        if features.ndim == 3 and features.shape[0] == 1 and self._kind == "features":
            features = features[0]
        if features.ndim == 3:
            height, width, _ = features.shape
            return features.reshape(height * width, -1), grid_boxes(height, width)
        if self._kind == "grids" or self._hidden_grid:
            side = math.isqrt(len(features))
            if side * side != len(features):
                raise ValueError(f"{len(features)} cells are not a square grid")
            return features, grid_boxes(side, side)
        return features, self._boxes(image)

    def _boxes(self, image: str) -> np.ndarray | None:
        if image not in self._boxed:
            return None
        if image in self._sized:
            height, width = self._array(image, "size").reshape(-1)[:2].tolist()
        elif image in self.sizes:
            width, height = self.sizes[image]
        elif not self._boxes_in_pixels:
            width = height = 1.0
        else:
            return None
        return scale_boxes(self._array(image, "boxes"), width, height)

    @cached_property
    def _boxes_in_pixels(self) -> bool:
        first = next(image for image in self.ids if image in self._boxed)
        return bool(self._array(first, "boxes").max(initial=0) > 2)

    @cached_property
    def _hidden_grid(self) -> bool:
        if self._boxed or WRITTEN_BY_LEGENDA in self._file.attrs:
            return False
        return all(self._array(image, "features").shape[:-1] == (49,) for image in self.ids[:_SAMPLE])

    def _array(self, image: str, kind: str) -> np.ndarray:
        """One data set, read with the low-level API, since h5py's objects take longer than the reading."""
        h5py = import_extra("h5py", "formats")

        with self._lock:
            data = h5py.h5d.open(self._file.id, dataset_name(image, kind))
            layout = data.get_create_plist()
            if layout.get_layout() == h5py.h5d.VIRTUAL or layout.get_external_count():
                raise ValueError("its values are in another file")
            chunk = layout.get_chunk() if layout.get_layout() == h5py.h5d.CHUNKED else ()
            if max(math.prod(data.shape), math.prod(chunk)) * data.dtype.itemsize > MAX_BYTES:
                raise ValueError(f"it has over {MAX_BYTES >> 20} MiB")
            if (
                chunk
                and math.prod(-(-side // part) for side, part in zip(data.shape, chunk, strict=True)) > _MAX_CHUNKS
            ):
                raise ValueError(f"it has over {_MAX_CHUNKS} chunks")
            values = np.empty(data.shape, data.dtype)
            data.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
        return values


def dataset_name(image: str, kind: str) -> bytes:
    """Return the name of the data set of an image; bytes that are not UTF-8 stay, as in names of files."""
    return f"{image}_{kind}".encode("utf-8", "surrogateescape")


def split_kind(path: Path) -> tuple[Path, str | None]:
    """Return the file and the kind in `file.hdf5:grids`; None where no kind is named."""
    for kind in KINDS:
        if path.name.endswith(f":{kind}"):
            return path.with_name(path.name.removesuffix(f":{kind}")), kind
    return path, None


def _find_names(file: Any) -> list[str]:
    """Return the names of all objects; raise ValueError for a soft or external link, which may lead to another file."""
    links: list[tuple[bytes, int]] = []
    file.id.links.iterate(lambda name, info: links.append((name, info.type)), info=True)
    names = [name.decode("utf-8", "surrogateescape") for name, _ in links]
    for name, (_, kind) in zip(names, links, strict=True):
        if kind != 0:  # h5py.h5l.TYPE_HARD
            raise ValueError(f"its {name} is a link, perhaps to another file")
    return names


def _with_ending(names: list[str], ending: str) -> list[str]:
    return [name.removesuffix(ending) for name in names if name.endswith(ending)]
