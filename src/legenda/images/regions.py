"""The regions of images as arrays, and what makes them valid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ImageRegions = tuple[np.ndarray, np.ndarray | None]
"""The features (n, D) and boxes (n, 4) of an image, x1 y1 x2 y2 in 0..1, or None."""


@dataclass(frozen=True, eq=False)
class RegionArrays:
    """The regions of B images, padded with zeros to the same number N.

    features: (B, N, D), float16 or float32 as stored; boxes: (B, N, 4) float32, x1 y1 x2 y2 in 0..1, or None;
    mask: (B, N) bool, True = real.
    """

    features: np.ndarray
    boxes: np.ndarray | None
    mask: np.ndarray


_BOX_TOLERANCE = 1e-3


_LARGEST = 1e9
"""The largest feature, far beyond those of all extractors: products of larger ones overflow in float32."""


_HALF_INFINITY = 0x7C00
"""The bits of float16 infinity; without the sign bit, those of NaN are greater, those of finite numbers less."""


_BLOCK = 1 << 16


def pack(regions: Sequence[ImageRegions], feature_dim: int, has_boxes: bool) -> RegionArrays:
    """Return the regions of several images as one batch, padded with zeros."""
    counts = np.array([len(features) for features, _ in regions], np.int64)
    mask = np.arange(counts.max(initial=0)) < counts[:, None]
    halves = bool(regions) and all(features.dtype == np.float16 for features, _ in regions)
    features = np.empty((*mask.shape, feature_dim), np.float16 if halves else np.float32)
    boxes = np.zeros((*mask.shape, 4), np.float32) if has_boxes else None
    for row, (image_features, image_boxes) in enumerate(regions):
        features[row, : len(image_features)] = image_features
        features[row, len(image_features) :] = 0
        if boxes is not None:
            boxes[row, : len(image_features)] = image_boxes
    return RegionArrays(features, boxes, mask)


def check_regions(features: np.ndarray, boxes: np.ndarray | None, dtype: np.dtype | None = None) -> ImageRegions:
    """Return the features (n, D) of an image in a dtype, and its boxes (n, 4) in float32, clipped to 0..1.

    dtype: float16 or float32; by default float16 stays, and all else becomes float32. Raise ValueError with what is
    wrong with types, shapes or values, as the end of a sentence about the image.
    """
    features = np.asarray(features)
    require_real(features)
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(
            f"features of shape {features.shape}, where (regions, width) with at least one region is needed"
        )
    if dtype is None:
        dtype = np.dtype(np.float16 if features.dtype == np.float16 else np.float32)
    if features.dtype == np.float16:
        bits = features.reshape(-1).view(np.uint16)  # np.isfinite takes five times as long
        blocks = (bits[start : start + _BLOCK] for start in range(0, bits.size, _BLOCK))
        if any((block & 0x7FFF).max() >= _HALF_INFINITY for block in blocks):
            raise ValueError("features that are NaN or infinite")
    else:
        worst = np.maximum(-float(features.min()), float(features.max()))  # NaN wins every minimum and maximum
        limit = min(float(np.finfo(dtype).max), _LARGEST)
        if not np.isfinite(worst):
            raise ValueError("features that are NaN or infinite")
        if worst > limit:
            raise ValueError(f"features as large as {worst:g}, where the limit is {limit:g}")
    features = features.astype(dtype, copy=False)
    if boxes is None:
        return features, None
    require_real(np.asarray(boxes))
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows leaves 0..1
        boxes = np.asarray(boxes, np.float32)
    if boxes.shape != (len(features), 4):
        raise ValueError(f"boxes of shape {boxes.shape} for {len(features)} regions")
    low, high = boxes.min(), boxes.max()
    if not (low >= -_BOX_TOLERANCE and high <= 1 + _BOX_TOLERANCE):
        inside = ((boxes >= -_BOX_TOLERANCE) & (boxes <= 1 + _BOX_TOLERANCE)).all(1)
        raise ValueError(f"the box {boxes[~inside][0].tolist()}, which leaves 0..1")
    cut = boxes if low >= 0 and high <= 1 else boxes.clip(0, 1)
    filled = (cut[:, 2:] > cut[:, :2]).all(1)
    if not filled.all():
        raise ValueError(f"the box {boxes[~filled][0].tolist()}, which is empty (x1 < x2 and y1 < y2 are needed)")
    return features, cut


def require_real(values: np.ndarray) -> None:
    """Raise ValueError for values that are no real numbers: complex numbers, text, dates, objects."""
    if values.dtype.kind not in "fiub":
        raise ValueError(f"values of type {values.dtype}, where real numbers are needed")


def grid_boxes(height: int, width: int) -> np.ndarray:
    """Return the boxes (height * width, 4) of the cells of a grid in row-major order, x1 y1 x2 y2 in 0..1."""
    y, x = np.divmod(np.arange(height * width), width)
    corners = [x / width, y / height, (x + 1) / width, (y + 1) / height]
    return np.stack(corners, axis=1).astype(np.float32)
