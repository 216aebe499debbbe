"""Packed feature stores: the regions of many images in one safetensors file, or in one for each shard of a job.

Arrays of a file, little-endian, with `R` regions of all images one after the other:

    offsets   (images + 1,)  int64             image i owns the rows offsets[i] to offsets[i + 1]
    checksums (images,)      int64             of each image, see `_image_checksum`; may be absent
    boxes     (R, 4)         float32           x1, y1, x2, y2 in 0..1 of the image; may be absent
    features  (R, D)         float16, float32

The header's metadata holds `format`, `legenda` (the version that wrote it), `ids` (a JSON list, in the order of the
offsets) and `extractor`, and perhaps `data`, the digest of the data set that the images come from.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import safetensors

from legenda.config import conform
from legenda.errors import DataError
from legenda.features.base import FeatureStore, Image
from legenda.images.extractor import UNNAMED, ExtractorIdentity, ImageRegions, check_regions
from legenda.images.shards import MANIFEST, Manifest
from legenda.io import (
    FORMAT_VERSION,
    __version__,
    atomic_write,
    check_format,
    read_json,
    read_text,
    verified,
)
from legenda.terminal import counted

_FORMAT = re.compile(r"legenda\.features\.(\d{1,9})", re.ASCII)
_DTYPES = {"F16": "<f2", "F32": "<f4", "I64": "<i8"}
_TYPES = {"features": ("F16", "F32"), "boxes": ("F32",), "offsets": ("I64",), "checksums": ("I64",)}
"""Safetensors' names of the types that the arrays of a store may have."""
_AGAIN = "extract it again"
_HINT = "name a folder that legenda extract has written"
_MAX_OPEN = 128
"""Shards whose files are open at once."""


class PackedFeatureStore(FeatureStore):
    """A store of one file, whose structure is checked without reading boxes and features.

    Raises DataError, naming the file, when it is missing, truncated or not a feature store.
    """

    remedy = _AGAIN

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        hint = "name a feature file made by `legenda extract` or `legenda convert`"
        metadata, entries, start = verified(lambda: _read_header(path), path, hint)
        if (format_version := _FORMAT.fullmatch(metadata.get("format", ""))) is None:
            raise DataError(f"{path} is a safetensors file but not a feature store; {hint}")
        check_format(path, int(format_version[1]), metadata.get("legenda"))
        ids = verified(lambda: json.loads(metadata["ids"]), path, _AGAIN)
        if not isinstance(ids, list) or not ids or not all(isinstance(image, str) for image in ids):
            raise DataError(f"{path} has no list of names as its 'ids'; {_AGAIN}")
        super().__init__(path, ids, metadata.get("extractor", UNNAMED))
        self.has_boxes, self.data = "boxes" in entries, metadata.get("data", "")
        shape = entries["features"]["shape"] if "features" in entries else ()
        rows, self.feature_dim = shape if len(shape) == 2 else (0, 0)
        data = verified(lambda: np.asarray(np.memmap(path, np.uint8, "r", start)), path, _AGAIN)
        self._arrays: dict[str, np.ndarray] = {}
        layout = {"features": [rows, self.feature_dim], "offsets": [len(self) + 1], "boxes": [rows, 4]}
        for name, shape in (layout | {"checksums": [len(self)]}).items():
            entry, types = entries.get(name), _TYPES[name]
            if entry is None:
                if name in ("features", "offsets"):
                    raise DataError(f"{path} holds no array '{name}'; {_AGAIN}")
                continue
            if entry["dtype"] not in types:
                raise DataError(f"'{name}' of {path} is {entry['dtype']}, not {' or '.join(types)}; {_AGAIN}")
            if entry["shape"] != shape:
                raise DataError(
                    f"'{name}' of {path} has the shape {entry['shape']}, unlike its {counted(len(self), 'images')}"
                )
            values = data[slice(*entry["data_offsets"])].view(_DTYPES[entry["dtype"]])
            self._arrays[name] = values.reshape(shape)
        self._offsets = self._arrays["offsets"]
        if self._offsets[0] != 0 or self._offsets[-1] != rows or (self._offsets[1:] <= self._offsets[:-1]).any():
            raise DataError(f"{path} has 'offsets' that do not fit its {counted(len(self), 'images')}; {_AGAIN}")

    def load(self, position: int) -> ImageRegions:
        """Return the features and boxes of one image as they are stored."""
        start, stop = self._offsets[position : position + 2].tolist()
        boxes = self._arrays["boxes"][start:stop] if self.has_boxes else None
        return self._arrays["features"][start:stop], boxes

    def stored_checksums(self, positions: np.ndarray) -> np.ndarray:
        """Return the checksums of images, where the file holds them."""
        return self._arrays["checksums"][positions] if "checksums" in self._arrays else np.empty(0, np.int64)

    def verify(self, position: int) -> None:
        """Raise DataError where an image differs from its checksum."""
        if "checksums" in self._arrays:
            (expected,) = self._arrays["checksums"][position : position + 1].tolist()
            if _image_checksum(self.ids[position], *self.load(position)) != expected:
                raise DataError(f"{self.path}: image '{self.ids[position]}' differs from its checksum; {_AGAIN}")


def _read_header(path: Path) -> tuple[dict[str, str], dict[str, dict], int]:
    """Return a safetensors file's metadata, its entries by name, and where its data start; raise if it is damaged."""
    metadata = safetensors.safe_open(path, framework="numpy").metadata()
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return metadata or {}, json.loads(file.read(length)), 8 + length


def _image_checksum(image: str, features: np.ndarray, boxes: np.ndarray | None) -> int:
    """Return the CRC-32 of an image's id, features and boxes as they are stored; it detects damage but no intent."""
    crc = zlib.crc32(features.tobytes(), zlib.crc32(image.encode("utf-8", "surrogatepass")))
    return crc if boxes is None else zlib.crc32(boxes.tobytes(), crc)


class ShardedStore(FeatureStore):
    """The shards of one finished job, read as one store in the order of its listing.

    `write_store(path, store.images(), ...)` merges them into one file.
    Raise DataError where the folder is no job of features, or shards are missing or differ.
    """

    def __init__(self, path: Path, sizes_file: Path | None = None) -> None:  # noqa: ARG002 - boxes are relative
        manifest = conform(read_json(path / MANIFEST, _HINT), Manifest, path / MANIFEST, _HINT)
        if manifest.kind != "features":
            raise DataError(f"{path} holds {manifest.kind}, not features; {_HINT}")
        done, count = len(list(path.glob("features-*.jsonl"))), -(-manifest.images // max(manifest.shard_size, 1))
        if done != count:
            raise DataError(f"{path} holds {done} of {count} shards; call legenda extract again to complete it")
        for lines in path.glob("features-*.jsonl"):
            if not lines.with_suffix(".safetensors").exists() and '"regions":' in read_text(lines, _HINT):
                raise DataError(f"{lines.with_suffix('.safetensors')} is missing; delete {lines} and extract again")
        self._files = sorted(path.glob("features-*.safetensors"))
        if not self._files:
            raise DataError(f"{path} holds no features of any image; see the errors in its .jsonl files")
        self._open = lru_cache(_MAX_OPEN)(PackedFeatureStore)
        first = self._open(self._files[0])
        self.feature_dim, self.has_boxes = first.feature_dim, first.has_boxes
        ids: list[str] = []
        starts: list[int] = []
        for file in self._files:
            store = self._open(file)
            if (store.feature_dim, store.has_boxes) != (self.feature_dim, self.has_boxes):
                raise DataError(f"{file} has features of another layout than {self._files[0]}; extract it again")
            starts.append(len(ids))
            ids += store.ids
        self._starts = np.array(starts)
        super().__init__(path, ids, first.extractor)

    def read_valid(self, position: int) -> ImageRegions:
        """Return the features and boxes of an image, read from its shard, which errors name."""
        shard, position = self._place(position)
        return shard.read_valid(position)

    load = read_valid

    def verify(self, position: int) -> None:
        """Raise DataError where an image differs from the checksum in its shard."""
        shard, position = self._place(position)
        shard.verify(position)

    def _place(self, position: int) -> tuple[PackedFeatureStore, int]:
        """Return the shard of an image and its position there."""
        shard = int(np.searchsorted(self._starts, position, side="right")) - 1
        return self._open(self._files[shard]), int(position - self._starts[shard])


def write_store(
    path: str | Path,
    images: Iterable[Image],
    *,
    extractor: ExtractorIdentity | str,
    data: str = "",
    dtype: Literal["float16", "float32"] = "float16",
    verify: Callable[[Path], None] | None = None,
    sync: bool = False,
) -> None:
    """Write a store image by image, in constant memory, atomically.

    images: (id, features (n, D), boxes (n, 4) x1 y1 x2 y2 in 0..1 or None), with the same D for all images, and
    boxes for all or for none; boxes are clipped to 0..1 from at most 0.001 outside.
    extractor: the identity of what made the features, or its short form. data: digest of their data set.
    sync: write to the disk before the file gets its name, so that a crash of the system leaves no part of it.
    verify: called with the complete file before it gets its name; `path` stays as it was where this raises.
    Raises DataError, naming the image, for features or boxes that are not valid.
    """
    path, stored = Path(path), np.dtype(dtype).newbyteorder("<")
    extractor = ExtractorIdentity.read(extractor, path)
    if path.is_dir():
        raise DataError(f"{path} is a folder; name the feature file to write")
    with (
        atomic_write(path, sync=sync) as partial,
        tempfile.TemporaryFile(dir=path.parent) as all_boxes,
        tempfile.TemporaryFile(dir=path.parent) as all_features,
    ):
        ids: list[str] = []
        offsets, checksums = [0], list[int]()
        shapes: dict[str, tuple[int, ...]] = {"offsets": (0,), "checksums": (0,)}
        for image, features, boxes in checked_images(images, stored, path, extractor):
            ids.append(image)
            offsets.append(offsets[-1] + len(features))
            checksums.append(_image_checksum(image, features, boxes))
            all_features.write(features.tobytes())
            if boxes is not None:
                all_boxes.write(boxes.tobytes())
                shapes["boxes"] = (offsets[-1], 4)
            shapes["features"] = (offsets[-1], features.shape[1])
        shapes |= {"offsets": (len(offsets),), "checksums": (len(ids),)}
        with partial.open("wb") as file:
            metadata = {"format": f"legenda.features.{FORMAT_VERSION}", "legenda": __version__}
            metadata |= {"extractor": json.dumps(extractor.to_json()), "ids": json.dumps(ids)}
            metadata |= {"data": data} if data else {}
            file.write(_header(shapes, stored, metadata))
            file.write(np.array(offsets + checksums, "<i8").tobytes())
            for values in (all_boxes, all_features):
                values.seek(0)
                shutil.copyfileobj(values, file, 1 << 20)
        if verify is not None:
            verify(partial)


def checked_images(
    images: Iterable[Image], stored: np.dtype, out: Path, extractor: ExtractorIdentity
) -> Iterator[Image]:
    """Yield images in the precision `stored`, their boxes clipped to 0..1.

    Raise DataError, naming `out` and the image, for one that no store may hold, and where there is none.
    """
    ids: set[str] = set()
    width, with_boxes = None, False
    for image, raw_features, raw_boxes in images:
        where = f"{out} is not written: image '{image}' of extractor {extractor} has"
        try:
            features, boxes = check_regions(raw_features, raw_boxes, stored)
        except ValueError as fault:
            raise DataError(f"{where} {fault}; correct the extractor or leave the image out") from None
        if image in ids:
            raise DataError(f"{where} the id of an earlier image; make the ids unique")
        if width is not None and features.shape[1] != width:
            raise DataError(f"{where} features of width {features.shape[1]}, those before {width}; use one extractor")
        if width is not None and (boxes is not None) != with_boxes:
            have = "no boxes" if boxes is None else "boxes"
            raise DataError(f"{where} {have}, unlike those before; give boxes for all or none")
        width, with_boxes = features.shape[1], boxes is not None
        ids.add(image)
        yield image, features, boxes
    if not ids:
        raise DataError(f"{out} is not written: there is no image to store; name at least one")


def _header(shapes: Mapping[str, tuple[int, ...]], stored: np.dtype, metadata: Mapping[str, str]) -> bytes:
    """Return the safetensors header: its length in 8 bytes, then JSON, padded to a multiple of 8."""
    codes = {name: codes[-1] for name, codes in _TYPES.items()} | {"features": f"F{8 * stored.itemsize}"}
    entries: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + math.prod(shape) * int(codes[name][1:]) // 8
        entries[name] = {"dtype": codes[name], "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
