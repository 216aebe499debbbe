"""Validation of the regions of images, for extractors and for stores of every format."""

import numpy as np

_BOX_TOLERANCE = 1e-3
_LARGEST = 1e9
"""The largest feature, far beyond those of all extractors: products of larger ones overflow in float32."""
_HALF_INFINITY = 0x7C00
"""The bits of float16 infinity; without the sign bit, those of NaN are greater, those of finite numbers less."""
_BLOCK = 1 << 16
_REAL = "fiub"
"""The kinds of dtypes of real numbers."""


def validate_regions(features: np.ndarray, boxes: np.ndarray | None) -> str | None:
    """Return what is wrong with the regions of one image (shapes, NaN, invalid boxes), or None."""
    shape_fault = validate_shapes(features, boxes)
    return shape_fault or validate_values(features, boxes, largest_feature(np.dtype(np.float32)))


def largest_feature(dtype: np.dtype) -> float:
    """Return the largest feature that a store of a dtype may hold."""
    return min(float(np.finfo(dtype).max), _LARGEST)


def find_unstorable(features: np.ndarray) -> str | None:
    """Return why the features (n, D) of an extractor cannot be stored in float16, or None."""
    return validate_values(as_floats(features), None, largest_feature(np.dtype(np.float16)))


def validate_shapes(features: np.ndarray, boxes: np.ndarray | None) -> str | None:
    """Return what is wrong with types and shapes of one image's features (n, D) and boxes (n, 4), or None."""
    for values in (features, boxes):
        if values is not None and values.dtype.kind not in _REAL:
            return _type_fault(values)
    if features.ndim != 2 or 0 in features.shape:
        return f"features of shape {features.shape}, where (regions, width) with at least one region is needed"
    if boxes is not None and boxes.shape != (len(features), 4):
        return f"boxes of shape {boxes.shape} for {len(features)} regions"
    return None


def validate_values(features: np.ndarray, boxes: np.ndarray | None, limit: float) -> str | None:
    """Return what is wrong with features (..., D), over `limit`, or boxes (R, 4), outside 0..1, or None."""
    if features.dtype == np.float16:
        if _any_half_infinite(features):
            return "features that are NaN or infinite"
    elif features.size:
        worst = np.maximum(-features.min(), features.max())  # NaN wins every minimum and maximum
        if not np.isfinite(worst):
            return "features that are NaN or infinite"
        if worst > limit:
            return f"features as large as {worst:g}, where the limit is {limit:g}"
    if boxes is not None:
        inside = ((boxes >= -_BOX_TOLERANCE) & (boxes <= 1 + _BOX_TOLERANCE)).all(1)
        if not inside.all():
            return f"the box {boxes[~inside][0].tolist()}, which leaves 0..1"
        cut = boxes.clip(0, 1)
        filled = (cut[:, 2:] > cut[:, :2]).all(1)
        if not filled.all():
            return f"the box {boxes[~filled][0].tolist()}, which is empty (x1 < x2 and y1 < y2 are needed)"
    return None


def _any_half_infinite(features: np.ndarray) -> bool:
    """Return whether float16 values hold NaN or an infinity, in blocks that fit into the cache."""
    bits = features.reshape(-1).view(np.uint16)
    unsigned = np.empty(min(bits.size, _BLOCK), np.uint16)
    for start in range(0, bits.size, _BLOCK):
        block = bits[start : start + _BLOCK]
        if np.bitwise_and(block, np.uint16(0x7FFF), out=unsigned[: block.size]).max() >= _HALF_INFINITY:
            return True
    return False


def as_floats(values: np.ndarray) -> np.ndarray:
    """Return numbers as float32; overflow becomes infinite, which `validate_values` reports.

    Raise TypeError for values that are no real numbers: complex numbers, text, dates, objects.
    """
    values = np.asarray(values)
    require_real(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32)


def require_real(values: np.ndarray) -> None:
    """Raise TypeError for values that are no real numbers."""
    if values.dtype.kind not in _REAL:
        raise TypeError(_type_fault(values))


def _type_fault(values: np.ndarray) -> str:
    return f"values of type {values.dtype}, where real numbers are needed"


def grid_boxes(height: int, width: int) -> np.ndarray:
    """Return the boxes (height * width, 4) of the cells of a grid in row-major order, x1 y1 x2 y2 in 0..1."""
    y, x = np.divmod(np.arange(height * width), width)
    corners = [x / width, y / height, (x + 1) / width, (y + 1) / height]
    return np.stack(corners, axis=1).astype(np.float32)
