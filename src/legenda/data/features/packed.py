"""The packed feature store: the regions of many images in one safetensors file.

Arrays of the file, little-endian, with `R` regions of all images one after the other:

    offsets   (images + 1,)  int64             image i owns the rows offsets[i] to offsets[i + 1]
    checksums (images,)      int64             of each image, see `image_checksum`; absent in files of earlier versions
    boxes     (R, 4)         float32           x1, y1, x2, y2 in 0..1 of the image; may be absent
    features  (R, D)         float16, float32

The header's metadata holds `format`, `ids` (a JSON list, in the order of the offsets) and `extractor`.
"""

import json
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from legenda.data.features.base import UNNAMED, FeatureStore, RegionArrays
from legenda.data.features.validate import largest_feature, validate_values
from legenda.errors import DataError
from legenda.io import verified

FORMAT = "legenda.features.1"
DTYPES = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "I64": np.dtype("<i8")}
"""Safetensors' names of the types that a store may hold."""
_AGAIN = "extract it again"


class _Rows:
    """Rows of an array in a file, read when they are needed; a mapping would end the process where the file is cut."""

    def __init__(self, path: Path, dtype: np.dtype, offset: int, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape
        self._file, self._offset = path.open("rb"), offset
        self._row = math.prod(shape[1:]) * dtype.itemsize

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return rows."""
        rows = np.empty((stop - start, *self.shape[1:]), self.dtype)
        self.copy(start, rows)
        return rows

    def copy(self, start: int, out: np.ndarray) -> None:
        """Copy the rows from `start` on into `out`; OSError where the file has since been cut."""
        wanted, done = out.reshape(-1).view(np.uint8).data, 0
        while done < len(wanted):
            count = self._read_into(wanted[done:], self._offset + start * self._row + done)
            if not count:
                raise OSError("it is truncated")
            done += count

    def _read_into(self, wanted: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [wanted], offset)
        with open(self._file.name, "rb") as file:  # noqa: PTH123 - of its own, since threads share the position
            file.seek(offset)
            return file.readinto(wanted)


class PackedFeatureStore(FeatureStore):
    """A store of one file, whose structure is checked without reading boxes and features.

    Raises DataError, naming the file, when it is missing, truncated or not a feature store.
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        header, start = verified(lambda: _read_header(path), path, "name a feature file made by `legenda extract`")
        metadata = header.pop("__metadata__", None)
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
            raise DataError(f"{path} is a safetensors file but not a feature store; make one with `legenda extract`")
        extractor = metadata.get("extractor", UNNAMED)
        if not isinstance(extractor, str):
            raise DataError(f"{path} has an 'extractor' that is not text; {_AGAIN}")
        super().__init__(path, _read_ids(path, metadata), extractor)
        verified(lambda: _check_layout(header, path.stat().st_size - start), path, _AGAIN)
        stored_offsets = _find_array(path, header, start, "offsets", ("I64",))
        self._stored = _find_array(path, header, start, "features", ("F16", "F32"))
        self._boxes = _find_array(path, header, start, "boxes", ("F32",)) if "boxes" in header else None
        self._checksums = _find_array(path, header, start, "checksums", ("I64",)) if "checksums" in header else None
        shape = self._stored.shape
        if (
            len(shape) != 2
            or (self._boxes is not None and self._boxes.shape != (shape[0], 4))
            or (self._checksums is not None and self._checksums.shape != (len(self),))
        ):
            raise DataError(f"{path} holds arrays of the wrong shape; {_AGAIN}")
        fits, offsets = stored_offsets.shape == (len(self) + 1,), np.zeros(1, np.int64)
        if fits:
            offsets = verified(lambda: stored_offsets.read(0, len(self) + 1), path, _AGAIN)
        self._offsets = offsets
        if not fits or offsets[0] != 0 or offsets[-1] != shape[0] or (offsets[1:] <= offsets[:-1]).any():
            raise DataError(f"{path} has 'offsets' that do not fit its {len(self)} images; {_AGAIN}")

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedFeatureStore, (self.path,)

    @property
    def feature_dim(self) -> int:
        """Return the width D of a region's feature vector."""
        return self._stored.shape[1]

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
        features = np.empty((*mask.shape, self.feature_dim), self._stored.dtype)
        for regions, start, count in zip(features, starts.tolist(), counts.tolist(), strict=True):
            verified(partial(self._stored.copy, start, regions[:count]), self.path, _AGAIN)
            regions[count:] = 0
        boxes, real = None, None
        if self._boxes is not None:
            real = np.empty((int(counts.sum()), 4), np.float32)
            ends = counts.cumsum().tolist()
            for start, count, end in zip(starts.tolist(), counts.tolist(), ends, strict=True):
                verified(partial(self._boxes.copy, start, real[end - count : end]), self.path, _AGAIN)
            boxes = np.zeros((*mask.shape, 4), np.float32)
            boxes[mask] = real.clip(0, 1)
        if validate_values(features, real, self._limit) is not None:
            self._name_fault(positions)
        return RegionArrays(features, boxes, mask)

    def verify(self, position: int) -> None:
        """Raise DataError where an image differs from its checksum."""
        if self._checksums is None:
            return

        def read() -> tuple[int, int]:
            start, stop = self._offsets[position : position + 2].tolist()
            boxes = None if self._boxes is None else self._boxes.read(start, stop)
            (expected,) = self._checksums.read(position, position + 1).tolist()
            return expected, image_checksum(self.ids[position], self._stored.read(start, stop), boxes)

        expected, found = verified(read, self.path, _AGAIN)
        if found != expected:
            raise DataError(f"{self.path}: image '{self.ids[position]}' differs from its checksum; {_AGAIN}")

    @property
    def _limit(self) -> float:
        return largest_feature(self._stored.dtype)

    def _name_fault(self, positions: np.ndarray) -> None:
        for position in positions:
            start, stop = self._offsets[position : position + 2].tolist()
            boxes = None if self._boxes is None else self._boxes.read(start, stop)
            fault = validate_values(self._stored.read(start, stop), boxes, self._limit)
            if fault is not None:
                raise DataError(f"{self.path}: image '{self.ids[position]}' has {fault}; {_AGAIN}")


def image_checksum(image: str, features: np.ndarray, boxes: np.ndarray | None) -> int:
    """Return the CRC-32 of an image's id, features and boxes as they are stored; it detects damage but no intent."""
    found = zlib.crc32(features.tobytes(), zlib.crc32(image.encode("utf-8", "surrogatepass")))
    return found if boxes is None else zlib.crc32(boxes.tobytes(), found)


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


def _check_layout(header: Mapping[str, Any], size: int) -> None:
    """Raise ValueError unless the arrays follow each other and fill the file, as safetensors requires."""
    last = 0
    for begin, end in sorted(entry["data_offsets"] for entry in header.values()):
        if not isinstance(begin, int) or not isinstance(end, int) or begin != last or end < begin:
            raise ValueError("its arrays overlap or leave gaps")
        last = end
    if last != size:
        raise ValueError("it is truncated" if last > size else "it is longer than its arrays")


def _find_array(path: Path, header: Mapping[str, Any], start: int, name: str, codes: tuple[str, ...]) -> _Rows:
    """Return one array of the file; DataError when the header describes none, or one of another type or size."""

    def read() -> _Rows:
        entry = header[name]
        if entry["dtype"] not in codes:
            raise ValueError(f"it is {entry['dtype']}, not {' or '.join(codes)}")
        dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        if not all(isinstance(length, int) and length >= 0 for length in shape):
            raise ValueError(f"its shape is {shape}")
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError("its size and its shape differ")
        return _Rows(path, dtype, start + begin, shape)

    if name not in header:
        raise DataError(f"{path} holds no array '{name}'; {_AGAIN}")
    return verified(read, f"'{name}' of {path}", _AGAIN)
