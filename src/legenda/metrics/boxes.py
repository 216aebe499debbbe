"""Boxes in pixels: how far two agree, what a model learns of them, and the accuracy of visual grounding.

A box is x1 y1 x2 y2. Fast R-CNN and what comes from it (MCAN's grounding code among them) count both edges of a box to
it, so that it is x2 - x1 + 1 wide; a plain box is x2 - x1 wide.
"""

import numpy as np

from legenda.errors import UserError

DELTA_SCALE = (0.1, 0.1, 0.2, 0.2)
"""The usual size of deltas, by which they are divided before they are learnt."""
HIT = 0.5
"""The least overlap of a box that counts as right."""


def box_iou(a: np.ndarray, b: np.ndarray, *, inclusive: bool = True) -> np.ndarray:
    """The common area of two boxes over the area of both together, 0 to 1.

    a, b: boxes `(..., 4)` whose leading axes broadcast, as `box_iou(boxes, truth[:, None])` of `(B, N, 4)` and
    `(B, 1, 4)`. inclusive: whether both edges belong to a box.
    """
    edge = float(inclusive)
    low, high = np.maximum(a[..., :2], b[..., :2]), np.minimum(a[..., 2:], b[..., 2:])
    common = (high - low + edge).clip(0).prod(-1)
    both = (a[..., 2:] - a[..., :2] + edge).prod(-1) + (b[..., 2:] - b[..., :2] + edge).prod(-1) - common
    return np.divide(common, both, out=np.zeros_like(common), where=both > 0)


def encode_deltas(boxes: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """How each of the boxes `(..., 4)` is moved and stretched to become the true one `(..., 4)`, as R-CNN learns it.

    The way between the centres in widths and heights of the box, and the logarithms of the ratios of the two widths and
    heights, over DELTA_SCALE. Both edges belong to a box.
    """
    centre, size = _centre_and_size(boxes)
    true_centre, true_size = _centre_and_size(truth)
    deltas = np.concatenate([(true_centre - centre) / size, np.log(true_size / size)], axis=-1)
    return deltas / np.asarray(DELTA_SCALE, deltas.dtype)


def decode_deltas(boxes: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """The boxes that deltas make of `boxes`, both `(..., 4)`.

    As in R-CNN's code, the far edges come out one pixel further than the true box's that was encoded: the size is put
    around the centre without taking the last pixel off again.
    """
    centre, size = _centre_and_size(boxes)
    steps = deltas * np.asarray(DELTA_SCALE, deltas.dtype)
    centre, size = centre + steps[..., :2] * size, size * np.exp(steps[..., 2:])
    return np.concatenate([centre - size / 2, centre + size / 2], axis=-1)


def clip_boxes(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Boxes `(..., 4)` cut at the last pixels of pictures of `sizes` `(..., 2)`, width and height."""
    last = np.concatenate([sizes, sizes], axis=-1) - 1
    return np.clip(boxes, 0, last)


def score_targets(overlaps: np.ndarray) -> np.ndarray:
    """What a model learns of the choice among boxes, `(B, N)`, given their overlaps with the true one, `(B, N)`.

    Those that overlap by at least half share 1 in proportion to their overlap; where there are none, all are 0.
    """
    near = np.where(overlaps >= HIT, overlaps, 0)
    total = near.sum(axis=-1, keepdims=True)
    return np.divide(near, total, out=np.zeros_like(near), where=total > 0)


def grounding_accuracy(predicted: np.ndarray, truth: np.ndarray, *, inclusive: bool = True) -> float:
    """The percentage of boxes `(E, 4)` that overlap their true one `(E, 4)` by at least half.

    inclusive: whether both edges belong to a box, as in MCAN's code; the papers say "more than" half and name no
    convention, which turns a few boxes on the border. UserError where there is nothing to compare.
    """
    if predicted.shape != truth.shape or len(predicted) == 0:
        raise UserError(
            f"predicted boxes {predicted.shape} and true boxes {truth.shape} need one shape (expressions, 4) and one "
            "expression at least"
        )
    return 100.0 * float((box_iou(predicted, truth, inclusive=inclusive) >= HIT).mean())


def _centre_and_size(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    size = boxes[..., 2:] - boxes[..., :2] + 1
    return boxes[..., :2] + size / 2, size
