"""Boxes in pixels: IoU, box regression targets, and the accuracy of visual grounding.

A box is x1 y1 x2 y2. Fast R-CNN and its descendants (MCAN's grounding code among them) count both edges of a box as
part of it, so its width is x2 - x1 + 1; otherwise the width is x2 - x1.
"""

import numpy as np

from legenda.errors import DataError

DELTA_SCALE = (0.1, 0.1, 0.2, 0.2)
"""The standard deviations that deltas are divided by."""
HIT = 0.5
"""The IoU from which a box counts as correct."""


def box_iou(a: np.ndarray, b: np.ndarray, *, inclusive: bool = True) -> np.ndarray:
    """Return the intersection over union of boxes.

    a, b: boxes `(..., 4)` whose leading axes broadcast, as in `box_iou(boxes, truth[:, None])` of `(B, N, 4)` and
    `(B, 1, 4)`. inclusive: whether both edges belong to a box.
    """
    edge = float(inclusive)
    low, high = np.maximum(a[..., :2], b[..., :2]), np.minimum(a[..., 2:], b[..., 2:])
    intersection = (high - low + edge).clip(0).prod(-1)
    areas = (a[..., 2:] - a[..., :2] + edge).prod(-1) + (b[..., 2:] - b[..., :2] + edge).prod(-1)
    union = areas - intersection
    return np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)


def encode_deltas(boxes: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the deltas `(..., 4)` from boxes `(..., 4)` to the ground truth `(..., 4)`, as in R-CNN.

    The offset of the centers in widths and heights of the box, and the logarithms of the ratios of widths and heights,
    divided by DELTA_SCALE. Both edges belong to a box.
    """
    center, size = _center_and_size(boxes)
    true_center, true_size = _center_and_size(truth)
    deltas = np.concatenate([(true_center - center) / size, np.log(true_size / size)], axis=-1)
    return deltas / np.asarray(DELTA_SCALE, deltas.dtype)


def decode_deltas(boxes: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """Return the boxes that deltas make of `boxes`, both `(..., 4)`.

    As in R-CNN's code, x2 and y2 are one pixel larger than those of the encoded box, because the last pixel is not
    subtracted again.
    """
    center, size = _center_and_size(boxes)
    scaled = deltas * np.asarray(DELTA_SCALE, deltas.dtype)
    center, size = center + scaled[..., :2] * size, size * np.exp(scaled[..., 2:])
    return np.concatenate([center - size / 2, center + size / 2], axis=-1)


def clip_boxes(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return boxes `(..., 4)` clipped to images of `sizes` `(..., 2)`, width and height."""
    last = np.concatenate([sizes, sizes], axis=-1) - 1
    return np.clip(boxes, 0, last)


def score_targets(iou: np.ndarray) -> np.ndarray:
    """Return the target distribution over boxes `(B, N)`, given their IoU with the ground truth `(B, N)`.

    IoUs of at least 0.5, normalized to sum to 1; all zeros where there are none.
    """
    positive = np.where(iou >= HIT, iou, 0)
    total = positive.sum(axis=-1, keepdims=True)
    return np.divide(positive, total, out=np.zeros_like(positive), where=total > 0)


def grounding_accuracy(predicted: np.ndarray, truth: np.ndarray, *, inclusive: bool = True) -> float:
    """Return the percentage of boxes `(E, 4)` whose IoU with the ground truth `(E, 4)` is at least 0.5.

    inclusive: whether both edges belong to a box, as in MCAN's code; the papers say "more than" 0.5 and name no
    convention, which decides a few boxes on the border. Raise DataError where the shapes differ or are empty.
    """
    if predicted.shape != truth.shape or len(predicted) == 0:
        raise DataError(
            f"predicted boxes {predicted.shape} and true boxes {truth.shape} must have the same shape (expressions, 4) "
            "with at least one expression"
        )
    return 100.0 * float((box_iou(predicted, truth, inclusive=inclusive) >= HIT).mean())


def _center_and_size(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    size = boxes[..., 2:] - boxes[..., :2] + 1
    return boxes[..., :2] + size / 2, size
