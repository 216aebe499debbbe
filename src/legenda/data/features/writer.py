"""Writer of the packed feature stores that `legenda.data.features.packed` reads."""

import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from legenda.data.features.identity import extractor_name
from legenda.data.features.packed import DTYPES, FORMAT, image_checksum
from legenda.data.features.validate import as_floats, largest_feature, validate_shapes, validate_values
from legenda.errors import DataError
from legenda.io import atomic_write

_CODES = {dtype: code for code, dtype in DTYPES.items()}


def write_store(
    path: str | Path,
    images: Iterable[tuple[str, np.ndarray, np.ndarray | None]],
    *,
    extractor: str,
    dtype: Literal["float16", "float32"] = "float16",
    name_in_errors: Path | None = None,
    verify: Callable[[Path], None] | None = None,
    sync: bool = False,
) -> None:
    """Write a store image by image, in constant memory, atomically.

    images: (id, features (n, D), boxes (n, 4) x1 y1 x2 y2 in 0..1 or None), with the same D for all images, and
    boxes for all or for none; boxes are clipped to 0..1 from at most 0.001 outside.
    extractor: the name of what made the features; name_in_errors: the file that errors name in place of `path`; sync:
    write to the disk before the file gets its name, so that a crash of the system leaves no part of it.
    verify: called with the complete file before it gets its name; `path` stays as it was where this raises.
    Raises DataError, naming the image, for features or boxes that are not valid.
    """
    path, stored = Path(path), np.dtype(dtype).newbyteorder("<")
    if path.is_dir():
        raise DataError(f"{path} is a folder; name the feature file to write")
    with (
        atomic_write(path, sync=sync) as partial,
        tempfile.TemporaryFile(dir=path.parent) as all_boxes,
        tempfile.TemporaryFile(dir=path.parent) as all_features,
    ):
        ids: dict[str, None] = {}
        offsets, checksums, width, with_boxes = [0], [], 0, False
        for image, raw_features, raw_boxes in images:
            where = f"image '{image}' of extractor {extractor_name(extractor)}"
            try:
                features = as_floats(raw_features)
                boxes = None if raw_boxes is None else as_floats(raw_boxes)
            except TypeError as error:
                raise DataError(f"{name_in_errors or path} is not written: {where} has {error}") from error
            fault = validate_shapes(features, boxes) or validate_values(features, boxes, largest_feature(stored))
            if not ids:
                width, with_boxes = features.shape[-1] if features.ndim else 0, boxes is not None
            if image in ids:
                fault = "the id of an earlier image; make the ids unique"
            elif fault is not None:
                fault = f"{fault}; correct the extractor or leave the image out"
            elif features.shape[1] != width:
                fault = f"features of width {features.shape[1]}, but those before {width}; use one extractor for all"
            elif (boxes is not None) != with_boxes:
                fault = f"{'no ' if boxes is None else ''}boxes, unlike those before; give boxes for all or none"
            if fault is not None:
                raise DataError(f"{name_in_errors or path} is not written: {where} has {fault}")
            ids[image] = None
            offsets.append(offsets[-1] + len(features))
            features, boxes = features.astype(stored), None if boxes is None else boxes.clip(0, 1)
            checksums.append(image_checksum(image, features, boxes))
            all_features.write(features.tobytes())
            if boxes is not None:
                all_boxes.write(boxes.tobytes())
        if not ids:
            raise DataError(f"{path} is not written: there is no image to store; name at least one")
        rows = offsets[-1]
        shapes = {"offsets": (len(offsets),), "checksums": (len(ids),), "boxes": (rows, 4), "features": (rows, width)}
        if not with_boxes:
            del shapes["boxes"]
        with partial.open("wb") as file:
            file.write(_header(shapes, stored, {"format": FORMAT, "extractor": extractor, "ids": json.dumps([*ids])}))
            file.write(np.array(offsets + checksums, "<i8").tobytes())
            for values in (all_boxes, all_features):
                values.seek(0)
                shutil.copyfileobj(values, file, 1 << 20)
        if verify is not None:
            verify(partial)


def _header(shapes: Mapping[str, tuple[int, ...]], stored: np.dtype, metadata: Mapping[str, str]) -> bytes:
    """Return the safetensors header: its length in 8 bytes, then JSON, padded to a multiple of 8."""
    dtypes = {"offsets": DTYPES["I64"], "checksums": DTYPES["I64"], "boxes": DTYPES["F32"], "features": stored}
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + math.prod(shape) * dtypes[name].itemsize
        entries[name] = {"dtype": _CODES[dtypes[name]], "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
