"""Boxes in pixels: IoU, and the accuracy of visual grounding.

A box is x1 y1 x2 y2. As in Fast R-CNN and its descendants (MCAN's grounding code among them) both edges of a box are
part of it, so its width is x2 - x1 + 1. The papers name no convention, which decides a few boxes on the border.
"""

import numpy as np

from legenda.errors import DataError

HIT = 0.5
"""The IoU from which a box counts as correct."""


def box_iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the intersection over union of boxes.

    a, b: boxes `(..., 4)` whose leading axes broadcast, as in `box_iou(boxes, truth[:, None])` of `(B, N, 4)` and
    `(B, 1, 4)`.
    """
    low, high = np.maximum(a[..., :2], b[..., :2]), np.minimum(a[..., 2:], b[..., 2:])
    intersection = (high - low + 1.0).clip(0).prod(-1)
    areas = (a[..., 2:] - a[..., :2] + 1.0).prod(-1) + (b[..., 2:] - b[..., :2] + 1.0).prod(-1)
    union = areas - intersection
    return np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)


def score_targets(iou: np.ndarray) -> np.ndarray:
    """Return the target distribution over boxes `(B, N)`, given their IoU with the ground truth `(B, N)`.

    IoUs of at least 0.5, normalized to sum to 1; all zeros where there are none.
    """
    positive = np.where(iou >= HIT, iou, 0)
    total = positive.sum(axis=-1, keepdims=True)
    return np.divide(positive, total, out=np.zeros_like(positive), where=total > 0)


def grounding_accuracy(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Return the percentage of boxes `(E, 4)` whose IoU with the ground truth `(E, 4)` is at least 0.5, as in MCAN's
    code; the papers say "more than" 0.5.

    Raise DataError where the shapes differ or are empty.
    """
    if predicted.shape != truth.shape or len(predicted) == 0:
        raise DataError(
            f"predicted boxes {predicted.shape} and true boxes {truth.shape} must have the same shape (expressions, 4) "
            "with at least one expression"
        )
    return 100.0 * float((box_iou(predicted, truth) >= HIT).mean())
