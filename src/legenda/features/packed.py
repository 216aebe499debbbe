"""The packed feature store: the regions of many images in one memory-mapped safetensors file.

Arrays of the file, little-endian, with `R` regions of all images one after the other:

    offsets   (images + 1,)  int64             image i owns the rows offsets[i] to offsets[i + 1]
    boxes     (R, 4)         float32           x1, y1, x2, y2 in 0..1 of the image; may be absent
    features  (R, D)         float16, float32

The header's metadata holds `format`, `ids` (a JSON list, in the order of the offsets) and `extractor`.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from legenda.errors import DataError
from legenda.features.base import UNNAMED, FeatureStore, RegionArrays
from legenda.features.validate import validate_values
from legenda.io import verified

FORMAT = "legenda.features.1"
DTYPES = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "I64": np.dtype("<i8")}
"""Safetensors' names of the types that a store may hold."""
_AGAIN = "extract it again"


class _Rows:
    """Rows of an array in a file: memory-mapped, and copied with `preadv` to keep resident memory low."""

    def __init__(self, path: Path, dtype: np.dtype, offset: int, shape: tuple[int, ...]) -> None:
        # a plain array over the mapping: slicing it costs a third of slicing numpy.memmap
        self.rows = np.asarray(np.memmap(path, dtype, "r", offset, shape))
        self._file, self._offset = path.open("rb"), offset

    def copy(self, start: int, out: np.ndarray) -> None:
        """Copy the rows from `start` on into `out`; OSError where the file has since been cut."""
        if not hasattr(os, "preadv"):
            out[...] = self.rows[start : start + len(out)]
            return
        wanted, done = out.data.cast("B"), 0
        while done < len(wanted):
            offset = self._offset + start * self.rows[:1].nbytes + done
            count = os.preadv(self._file.fileno(), [wanted[done:]], offset)
            if not count:
                raise OSError("it is truncated")
            done += count


class PackedFeatureStore(FeatureStore):
    """A store whose file is memory-mapped; its structure is checked without reading the features.

    Raises DataError, naming the file, when it is missing, truncated or not a feature store.
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        header, start = verified(lambda: _read_header(path), path, "name a feature file made by `legenda extract`")
        metadata = header.pop("__metadata__", None)
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
            raise DataError(f"{path} is a safetensors file but not a feature store; make one with `legenda extract`")
        super().__init__(path, _read_ids(path, metadata), str(metadata.get("extractor", UNNAMED)))
        self._offsets = offsets = _map_array(path, header, start, "offsets", ("I64",)).rows
        self._stored = _map_array(path, header, start, "features", ("F16", "F32"))
        self._boxes = _map_array(path, header, start, "boxes", ("F32",)).rows if "boxes" in header else None
        shape = self._stored.rows.shape
        if len(shape) != 2 or (self._boxes is not None and self._boxes.shape != (shape[0], 4)):
            raise DataError(f"{path} holds arrays of the wrong shape; {_AGAIN}")
        fits = offsets.shape == (len(self) + 1,) and offsets[0] == 0 and offsets[-1] == shape[0]
        if not fits or (np.diff(offsets) < 1).any():
            raise DataError(f"{path} has 'offsets' that do not fit its {len(self)} images; {_AGAIN}")

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedFeatureStore, (self.path,)

    @property
    def feature_dim(self) -> int:
        """Return the width D of a region's feature vector."""
        return self._stored.rows.shape[1]

    @property
    def has_boxes(self) -> bool:
        """Return whether the regions come with boxes."""
        return self._boxes is not None

    def read(self, images: Sequence[str] | Sequence[int] | np.ndarray) -> RegionArrays:
        """Read images by id or by position, in the given order, with repeats.

        Raises DataError, naming the image, for an unknown id, a feature that is NaN or infinite, or an invalid box.
        """
        positions = self.positions(images)
        starts = self._offsets[positions]
        counts = self._offsets[positions + 1] - starts
        slots = np.arange(counts.max(initial=0))
        mask = slots < counts[:, None]  # (B, N)
        features = np.empty((*mask.shape, self.feature_dim), self._stored.rows.dtype)
        for regions, start, count in zip(features, starts.tolist(), counts.tolist(), strict=True):
            verified(partial(self._stored.copy, start, regions[:count]), self.path, _AGAIN)
            regions[count:] = 0
        boxes, real = None, None
        if self._boxes is not None:
            real = self._boxes[(starts[:, None] + slots)[mask]]
            boxes = np.zeros((*mask.shape, 4), np.float32)
            boxes[mask] = real.clip(0, 1)
        if validate_values(features, real, self._limit) is not None:
            self._name_fault(positions)
        return RegionArrays(features, boxes, mask)

    @property
    def _limit(self) -> float:
        return float(np.finfo(self._stored.rows.dtype).max)

    def _name_fault(self, positions: np.ndarray) -> None:
        for position in positions:
            rows = slice(*self._offsets[position : position + 2])
            boxes = None if self._boxes is None else self._boxes[rows]
            fault = validate_values(self._stored.rows[rows], boxes, self._limit)
            if fault is not None:
                raise DataError(f"{self.path}: image '{self.ids[position]}' has {fault}; {_AGAIN}")


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the entries of the header and where the arrays start."""
    with path.open("rb") as file:
        length = int.from_bytes(_exactly(file, 8), "little")
        if length > path.stat().st_size:
            raise ValueError("it is no safetensors file, or it is truncated")
        entries = json.loads(_exactly(file, length))
    if not isinstance(entries, dict):
        raise ValueError("it is no safetensors file")
    return entries, 8 + length


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise ValueError("it is truncated")
    return data


def _read_ids(path: Path, metadata: Mapping[str, Any]) -> tuple[str, ...]:
    ids = verified(lambda: json.loads(metadata["ids"]), path, _AGAIN)
    if not isinstance(ids, list) or not ids or not all(isinstance(image, str) for image in ids):
        raise DataError(f"{path} has no list of names as its 'ids'; {_AGAIN}")
    return tuple(ids)


def _map_array(path: Path, header: Mapping[str, Any], start: int, name: str, codes: tuple[str, ...]) -> _Rows:
    """Map one array of the file into memory; DataError when the header describes none or the file ends within it."""

    def read() -> _Rows:
        entry = header[name]
        if entry["dtype"] not in codes:
            raise ValueError(f"it is {entry['dtype']}, not {' or '.join(codes)}")
        dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError("its size and its shape differ")
        if start + end > path.stat().st_size:
            raise ValueError("the file is truncated")
        return _Rows(path, dtype, start + begin, shape)

    if name not in header:
        raise DataError(f"{path} holds no array '{name}'; {_AGAIN}")
    return verified(read, f"'{name}' of {path}", _AGAIN)
