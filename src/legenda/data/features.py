"""The packed feature store: the regions of many images in one memory-mapped safetensors file.

Arrays of the file, little-endian, with `R` regions of all images one after the other:

    offsets   (images + 1,)  int64             image i owns the rows offsets[i] to offsets[i + 1]
    boxes     (R, 4)         float32           x1, y1, x2, y2 in 0..1 of the image; may be absent
    features  (R, D)         float16, float32

The header's metadata holds `format`, `ids` (a JSON list, in the order of the offsets) and `extractor`.
"""

import json
import math
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from legenda.errors import UserError
from legenda.files import checked, whole_file

_FORMAT = "legenda.features.1"
_DTYPES = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "I64": np.dtype("<i8")}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_BOX_TOLERANCE = 1e-3
_AGAIN = "extract it again"


@dataclass(frozen=True, eq=False)
class PackedRegions:
    """The regions of B images, padded with zeros to the N regions of the richest.

    features: (B, N, D) float32; boxes: (B, N, 4) float32, x1 y1 x2 y2 in 0..1, or None; mask: (B, N) bool, True = real.
    """

    features: np.ndarray
    boxes: np.ndarray | None
    mask: np.ndarray


@dataclass(frozen=True, eq=False)
class FeatureStore:
    """An opened store: memory-mapped, read in any order, cheap to pickle (a worker process opens the file anew)."""

    path: Path
    ids: tuple[str, ...] = field(repr=False)
    extractor: str
    _offsets: np.ndarray = field(repr=False)
    _features: np.ndarray = field(repr=False)
    _boxes: np.ndarray | None = field(repr=False)
    _positions: Mapping[str, int] = field(repr=False)

    @classmethod
    def open(cls, path: str | Path) -> "FeatureStore":
        """Opens the file and checks its structure without reading its features.

        Raises UserError, naming the file, when it is missing, truncated or not a feature store.
        """
        path = Path(path)
        header, start = checked(lambda: _read_header(path), path, "name a feature file made by `legenda extract`")
        metadata = header.pop("__metadata__", None)
        if not isinstance(metadata, dict) or metadata.get("format") != _FORMAT:
            raise UserError(f"{path} is a safetensors file but no feature store; make one with `legenda extract`")
        ids = _read_ids(path, metadata)
        offsets = _map_array(path, header, start, "offsets", ("I64",))
        features = _map_array(path, header, start, "features", ("F16", "F32"))
        boxes = _map_array(path, header, start, "boxes", ("F32",)) if "boxes" in header else None
        if features.ndim != 2 or (boxes is not None and boxes.shape != (len(features), 4)):
            raise UserError(f"{path} holds arrays of the wrong shape; {_AGAIN}")
        whole = offsets.shape == (len(ids) + 1,) and offsets[0] == 0 and offsets[-1] == len(features)
        if not whole or (np.diff(offsets) < 1).any():
            raise UserError(f"{path} has 'offsets' that do not fit its {len(ids)} images; {_AGAIN}")
        positions = {image: position for position, image in enumerate(ids)}
        if len(positions) != len(ids):
            raise UserError(f"{path} names an image twice among its 'ids'; {_AGAIN}")
        return cls(path, ids, str(metadata.get("extractor", "")), offsets, features, boxes, positions)

    def __len__(self) -> int:
        return len(self.ids)

    def __reduce__(self) -> tuple[Any, ...]:
        return FeatureStore.open, (self.path,)

    @property
    def feature_dim(self) -> int:
        """The width D of a region's feature vector."""
        return self._features.shape[1]

    @property
    def has_boxes(self) -> bool:
        """Whether the regions come with boxes."""
        return self._boxes is not None

    def index(self, image: str) -> int:
        """The position of an image in the store; UserError when it is not there."""
        position = self._positions.get(image)
        if position is None:
            raise UserError(f"{self.path} holds no features of image '{image}'; extract that picture too")
        return position

    def read(self, images: Sequence[str] | Sequence[int] | np.ndarray) -> PackedRegions:
        """Reads images by id or by position, in the order given, repeats allowed.

        Raises UserError, naming the image, for an unknown id, a feature that is NaN or infinite, or an impossible box.
        """
        positions = np.array([self.index(image) if isinstance(image, str) else image for image in images], np.int64)
        if ((positions < 0) | (positions >= len(self))).any():
            raise UserError(f"{self.path} has {len(self)} images; ask for positions from 0 to {len(self) - 1} only")
        starts = self._offsets[positions]
        counts = self._offsets[positions + 1] - starts
        slots = np.arange(counts.max(initial=0))
        mask = slots < counts[:, None]  # (B, N)
        features = np.zeros((*mask.shape, self.feature_dim), np.float32)
        for regions, start, count in zip(features, starts.tolist(), counts.tolist(), strict=True):
            _widen(self._features[start : start + count], regions[:count])
        boxes, real = None, None
        if self._boxes is not None:
            real = self._boxes[(starts[:, None] + slots)[mask]]
            boxes = np.zeros((*mask.shape, 4), np.float32)
            boxes[mask] = real.clip(0, 1)
        if _fault(features, real, self._limit) is not None:
            self._name_fault(positions)
        return PackedRegions(features, boxes, mask)

    def check(self) -> None:
        """Reads the whole store once, for files made elsewhere; UserError names the first faulty image."""
        for first in range(0, len(self), 64):
            self.read(range(first, min(first + 64, len(self))))

    @property
    def _limit(self) -> float:
        return float(np.finfo(self._features.dtype).max)

    def _name_fault(self, positions: np.ndarray) -> None:
        for position in positions:
            rows = slice(*self._offsets[position : position + 2])
            boxes = None if self._boxes is None else self._boxes[rows]
            fault = _fault(self._features[rows].astype(np.float32), boxes, self._limit)
            if fault is not None:
                raise UserError(f"{self.path}: image '{self.ids[position]}' has {fault}; {_AGAIN}")


def write_store(
    path: str | Path,
    images: Iterable[tuple[str, np.ndarray, np.ndarray | None]],
    *,
    extractor: str,
    dtype: Literal["float16", "float32"] = "float16",
) -> None:
    """Writes a store image by image, in constant memory, whole or not at all.

    images: (id, features (n, D), boxes (n, 4) x1 y1 x2 y2 in 0..1 or None), where n may differ and D may not;
    boxes are given for all images or for none; an excess of up to 0.001 over 0..1 is cut off.
    extractor: the name of what made the features.
    Raises UserError, naming the image, for features or boxes that no model could use.
    """
    path, stored = Path(path), np.dtype(dtype).newbyteorder("<")
    if path.is_dir():
        raise UserError(f"{path} is a folder; name the feature file to write")
    with (
        whole_file(path) as partial,
        tempfile.TemporaryFile(dir=path.parent) as all_boxes,
        tempfile.TemporaryFile(dir=path.parent) as all_features,
    ):
        ids: dict[str, None] = {}
        offsets, width, with_boxes = [0], 0, False
        for image, given_features, given_boxes in images:
            features = _float_array(given_features)
            boxes = None if given_boxes is None else _float_array(given_boxes)
            fault = _shape_fault(features, boxes) or _fault(features, boxes, float(np.finfo(stored).max))
            if not ids:
                width, with_boxes = features.shape[-1] if features.ndim else 0, boxes is not None
            if image in ids:
                fault = "come before; give every image an id of its own"
            elif fault is not None:
                fault = f"{fault}; mend the extractor or leave the image out"
            elif features.shape[1] != width:
                fault = f"features of width {features.shape[1]}, but those before {width}; use one extractor for all"
            elif (boxes is not None) != with_boxes:
                fault = f"{'no ' if boxes is None else ''}boxes, unlike those before; give boxes for all or none"
            if fault is not None:
                raise UserError(f"{path} is not written: image '{image}' of extractor {extractor} has {fault}")
            ids[image] = None
            offsets.append(offsets[-1] + len(features))
            all_features.write(features.astype(stored).tobytes())
            if boxes is not None:
                all_boxes.write(boxes.clip(0, 1).tobytes())
        if not ids:
            raise UserError(f"{path} is not written: there is no image to store; name at least one")
        shapes = {"offsets": (len(offsets),), "boxes": (offsets[-1], 4), "features": (offsets[-1], width)}
        if not with_boxes:
            del shapes["boxes"]
        with partial.open("wb") as file:
            file.write(_header(shapes, stored, {"format": _FORMAT, "extractor": extractor, "ids": json.dumps([*ids])}))
            file.write(np.array(offsets, "<i8").tobytes())
            for rows in (all_boxes, all_features):
                rows.seek(0)
                shutil.copyfileobj(rows, file, 1 << 20)


def find_fault(features: np.ndarray, boxes: np.ndarray | None) -> str | None:
    """What is wrong with the regions of one image, in words, or None: shapes, NaN, impossible boxes."""
    shape_fault = _shape_fault(features, boxes)
    return shape_fault or _fault(features, boxes, float(np.finfo(np.float32).max))


def _float_array(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is found and named by _fault
        return np.asarray(values).astype(np.float32)


def _shape_fault(features: np.ndarray, boxes: np.ndarray | None) -> str | None:
    if features.ndim != 2 or 0 in features.shape:
        return f"features of shape {features.shape}, where (regions, width) with at least one region is needed"
    if boxes is not None and boxes.shape != (len(features), 4):
        return f"boxes of shape {boxes.shape} for {len(features)} regions"
    return None


def _fault(features: np.ndarray, boxes: np.ndarray | None, limit: float) -> str | None:
    """What is wrong with the values of one or more images, in words, or None: features (..., D), boxes (R, 4)."""
    if features.size:
        worst = np.maximum(-features.min(), features.max())  # NaN wins every minimum and maximum
        if not np.isfinite(worst):
            return "features that are NaN or infinite"
        if worst > limit:
            return f"features as large as {worst:g}, where float16 ends at {limit:g}"
    if boxes is not None:
        inside = ((boxes >= -_BOX_TOLERANCE) & (boxes <= 1 + _BOX_TOLERANCE)).all(1)
        if not inside.all():
            return f"the box {boxes[~inside][0].tolist()}, which leaves 0..1"
        cut = boxes.clip(0, 1)
        filled = (cut[:, 2:] > cut[:, :2]).all(1)
        if not filled.all():
            return f"the box {boxes[~filled][0].tolist()}, which is empty (x1 < x2 and y1 < y2 are needed)"
    return None


def _widen(stored: np.ndarray, out: np.ndarray) -> None:
    """Copies float16 or float32 into float32; for finite float16 three times faster than NumPy's own conversion.

    The bits of a half, its sign kept at the top and the rest moved 13 places up, are the float32 of 2^-112 times its
    value. NaN and infinity come out beyond 65504, where `_fault` finds them.
    """
    if stored.dtype != np.float16:
        out[...] = stored
        return
    bits = out.view(np.int32)
    bits[...] = stored.view(np.int16)
    bits <<= 13
    bits &= np.int32(-0x70002000)
    out *= np.float32(2.0**112)


def _header(shapes: Mapping[str, tuple[int, ...]], stored: np.dtype, metadata: Mapping[str, str]) -> bytes:
    """The safetensors header: its length in 8 bytes, then JSON, padded so that the arrays start at a multiple of 8."""
    dtypes = {"offsets": _DTYPES["I64"], "boxes": _DTYPES["F32"], "features": stored}
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + math.prod(shape) * dtypes[name].itemsize
        entries[name] = {"dtype": _CODES[dtypes[name]], "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The entries of the header and where the arrays start."""
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
    ids = checked(lambda: json.loads(metadata["ids"]), path, _AGAIN)
    if not isinstance(ids, list) or not ids or not all(isinstance(image, str) for image in ids):
        raise UserError(f"{path} has no list of names as its 'ids'; {_AGAIN}")
    return tuple(ids)


def _map_array(path: Path, header: Mapping[str, Any], start: int, name: str, codes: tuple[str, ...]) -> np.ndarray:
    """Maps one array of the file into memory; UserError when the header describes none or the file ends within it."""

    def read() -> np.ndarray:
        entry = header[name]
        if entry["dtype"] not in codes:
            raise ValueError(f"it is {entry['dtype']}, not {' or '.join(codes)}")
        dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError("its size and its shape differ")
        if start + end > path.stat().st_size:
            raise ValueError("the file is truncated")
        # a plain array over the mapping: slicing it costs a third of slicing numpy.memmap
        return np.asarray(np.memmap(path, dtype, "r", start + begin, shape))

    if name not in header:
        raise UserError(f"{path} holds no array '{name}'; {_AGAIN}")
    return checked(read, f"'{name}' of {path}", _AGAIN)
