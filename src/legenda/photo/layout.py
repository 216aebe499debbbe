"""The channels of the regions of the extractor `photo`, and what fills those of things and of the whole image.

A region is the whole image, a part of it, a thing, or a predicted word or pair of words; each fills the channels that
it has and leaves the others 0, so that images of which only boxes are known have regions of the same kind.
"""

from __future__ import annotations

import numpy as np

CLASSES = 80
"""Classes of COCO, the first channels."""
VISUAL, GLOBAL, DENSE, WORD, SCALARS = 160, 160, 128, 128, 16
"""Channels after those of the classes: what is inside the box, the whole image, all predictions, two words, numbers."""
START_VISUAL = CLASSES
START_GLOBAL = START_VISUAL + VISUAL
START_DENSE = START_GLOBAL + GLOBAL
START_WORD = START_DENSE + DENSE
START_SCALARS = START_WORD + 2 * WORD
WIDTH = START_SCALARS + SCALARS
"""Channels of a region."""
MAX_THINGS = 20
"""Things of an image that become regions, those with the best scores."""
MIN_SCORE = 0.25
"""Least score of a thing that becomes a region."""
IS_WHOLE, SEES_PIXELS, IS_PART, IS_THING, IS_WORD, IS_PHRASE, SCORE, ROOT_AREA = range(START_SCALARS, START_SCALARS + 8)
CENTER, SIDES, SHARE, LOG_SHARE, LIFT = (START_SCALARS + number for number in (8, 10, 12, 13, 14))
"""CENTER and SIDES are two channels each, x and y."""
NUM_THINGS = START_SCALARS + 15


def fill_things(
    features: np.ndarray, boxes: np.ndarray, things: np.ndarray, scores: np.ndarray, classes: np.ndarray
) -> None:
    """Fill the regions of an image's things, and their counts into the whole image, region 0.

    features `(1 + n, WIDTH)` and boxes `(1 + n, 4)` of an image; things: the boxes of n things, `(n, 4)`.
    """
    count = len(scores)
    boxes[1 : 1 + count] = things
    sides = (things[:, 2:] - things[:, :2]).clip(0)
    rows = np.arange(1, 1 + count)
    features[rows, classes] = 1
    features[1 : 1 + count, IS_THING] = 1
    features[1 : 1 + count, SCORE] = scores
    features[1 : 1 + count, ROOT_AREA] = np.sqrt(sides.prod(1))
    features[1 : 1 + count, CENTER : CENTER + 2] = (things[:, :2] + things[:, 2:]) / 2 - 0.5
    features[1 : 1 + count, SIDES : SIDES + 2] = sides
    features[0, :CLASSES] = np.log1p(np.bincount(classes, scores, minlength=CLASSES))
    features[0, NUM_THINGS] = np.log1p(count) / 2


def fill_whole(features: np.ndarray, boxes: np.ndarray) -> None:
    """Fill what the whole image, region 0, has in every image."""
    features[0, IS_WHOLE] = 1
    boxes[0] = (0, 0, 1, 1)
