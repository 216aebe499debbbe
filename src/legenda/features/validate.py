"""What is wrong with the regions of an image, in words: one rule for extractors, files of others and our own."""

import numpy as np

_BOX_TOLERANCE = 1e-3
_HALF_INFINITY = 0x7C00
"""The bits of float16 infinity; those of NaN are greater, those of finite numbers less, once the sign is off."""
_BLOCK = 1 << 16


def validate_regions(features: np.ndarray, boxes: np.ndarray | None) -> str | None:
    """What is wrong with the regions of one image, in words, or None: shapes, NaN, impossible boxes."""
    shape_fault = validate_shapes(features, boxes)
    return shape_fault or validate_values(features, boxes, float(np.finfo(np.float32).max))


def validate_shapes(features: np.ndarray, boxes: np.ndarray | None) -> str | None:
    """What is wrong with the shapes of one image's regions: features (n, D) and boxes (n, 4) are right."""
    if features.ndim != 2 or 0 in features.shape:
        return f"features of shape {features.shape}, where (regions, width) with at least one region is needed"
    if boxes is not None and boxes.shape != (len(features), 4):
        return f"boxes of shape {boxes.shape} for {len(features)} regions"
    return None


def validate_values(features: np.ndarray, boxes: np.ndarray | None, limit: float) -> str | None:
    """What is wrong with the values of one or more images: features (..., D) beyond `limit`, boxes (R, 4) off 0..1."""
    if features.dtype == np.float16:
        if _any_half_infinite(features):
            return "features that are NaN or infinite"
    elif features.size:
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


def _any_half_infinite(features: np.ndarray) -> bool:
    """Whether float16 values hold NaN or an infinity, block by block so that the bits stay near the processor."""
    bits = features.reshape(-1).view(np.uint16)
    unsigned = np.empty(min(bits.size, _BLOCK), np.uint16)
    for start in range(0, bits.size, _BLOCK):
        block = bits[start : start + _BLOCK]
        if np.bitwise_and(block, np.uint16(0x7FFF), out=unsigned[: block.size]).max() >= _HALF_INFINITY:
            return True
    return False


def as_floats(values: np.ndarray) -> np.ndarray:
    """Any numbers as float32; what overflows becomes infinite, for `validate_values` to name."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(np.float32)


def grid_boxes(rows: int, columns: int) -> np.ndarray:
    """The boxes (rows * columns, 4) of a grid's cells, line by line, as x1 y1 x2 y2 in 0..1."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    corners = [column / columns, row / rows, (column + 1) / columns, (row + 1) / rows]
    return np.stack(corners, axis=1).astype(np.float32)
