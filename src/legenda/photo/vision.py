"""The two networks of the extractor `photo`, applied to an image whose aspect is kept.

EfficientNet-Lite2 (Tan and Le, ICML 2019, without squeeze and excitation) for about 260 x 260 pixels, and
NanoDet-Plus-m for COCO's 80 classes. Both are ONNX files, run by ONNX Runtime; the rest is NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from PIL import Image

from legenda.io import load_arrays
from legenda.run_folder import ASSETS, PACKAGED
from legenda.runtime.captioner import open_sessions
from legenda.runtime.search import log_softmax

CLASSES = 80
"""Classes of COCO, which the detector knows."""
_STRIDES = (8, 16, 32, 64)
"""Pixels between the detector's anchors on each of its levels."""
BINS = 8
"""Bins of the distribution of each side's distance, in strides."""
CANDIDATES, MOST_BOXES, MAX_OVERLAP, LEAST_SCORE = 300, 30, 0.6, 0.15


@dataclass(frozen=True, eq=False)
class Things:
    """Detected things, best first: boxes `(n, 4)` as x1 y1 x2 y2 in 0..1, scores `(n,)` and classes `(n,)` of COCO."""

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray


def detect(anchors: np.ndarray, height: int, width: int) -> Things:
    """Return the things that the detector sees, after non-maximum suppression in each class.

    anchors: its output `(80 + 4 * BINS, anchors)` for an image of `height` x `width` pixels: logits of the classes and
    of the distances of the four sides. A box is dropped that overlaps a better one of its class by more than
    MAX_OVERLAP.
    """
    best = anchors[:CLASSES].max(0)
    chosen = np.flatnonzero(best >= np.log(LEAST_SCORE / (1 - LEAST_SCORE)))
    chosen = chosen[np.argsort(-best[chosen], kind="stable")][:CANDIDATES]
    classes = anchors[:CLASSES, chosen].argmax(0)
    boxes = _decode(anchors[CLASSES:, chosen], chosen, height, width)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    left, kept = np.ones(len(boxes), bool), []
    for index, box in enumerate(boxes):
        if left[index]:
            kept.append(index)
            sides = np.minimum(boxes[:, 2:], box[2:]) - np.maximum(boxes[:, :2], box[:2])
            common = sides.clip(0).prod(axis=1)
            left &= (common <= MAX_OVERLAP * (areas + areas[index] - common)) | (classes != classes[index])
        if len(kept) == MOST_BOXES:
            break
    rows = np.array(kept, np.int64)
    return Things(boxes[rows], _sigmoid(best[chosen][rows]), classes[rows])


def _decode(distances: np.ndarray, anchors: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return the boxes `(n, 4)` in 0..1 of n anchors, from the logits of their distances, `(4 * BINS, n)`."""
    columns = np.array([-(-width // stride) for stride in _STRIDES])
    rows = np.array([-(-height // stride) for stride in _STRIDES])
    ends = np.cumsum(rows * columns)
    level = np.searchsorted(ends, anchors, side="right")
    cell = anchors - (ends - rows * columns)[level]
    y, x = np.divmod(cell, columns[level])
    bins = distances.reshape(4, BINS, -1)
    shares = np.exp(bins - bins.max(1, keepdims=True))
    left, top, right, bottom = (shares * np.arange(BINS)[:, np.newaxis]).sum(1) / shares.sum(1)
    step = np.array(_STRIDES)[level]
    corners = [(x - left) * step / width, (y - top) * step / height]
    corners += [(x + right) * step / width, (y + bottom) * step / height]
    return np.stack(corners, axis=1).clip(0, 1).astype(np.float32)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def summarize(things: Things, best: np.ndarray) -> np.ndarray:
    """Return four numbers of each class, `(4 * 80,)`.

    The root of the best score of any anchor; then, of the things: the number above 0.4 and the sum of scores above 0.3,
    both as log(1 + x), and the sum of score times root of the area above 0.25.
    """
    score, label = things.scores, things.classes
    left, top, right, bottom = things.boxes.T
    root_area = np.sqrt(((right - left) * (bottom - top)).clip(0))

    def by_class(values: np.ndarray) -> np.ndarray:
        return np.bincount(label, values, minlength=CLASSES)

    counts, sums = by_class(score > 0.4), by_class(score * (score > 0.3))
    areas = by_class(score * root_area * (score > 0.25))
    return np.concatenate([np.sqrt(best), np.log1p(counts), np.log1p(sums), areas]).astype(np.float32)


PARTS = 9
"""Overlapping parts of an image, 3 x 3."""
CHANNELS = 1280
"""Channels of EfficientNet-Lite2's map."""
OTHERS = (4 * CLASSES, 1624, 91, 1000)
"""Channels of the blocks of `ImageVectors.others`."""
_STRIDE = 32
"""Sides are multiples of it, so that no network pads its maps."""
_DETECTION_SIDE = 416
_AREA = 260 * 260
_MIN_SIDE = 96
_HINT = "install legenda again"


@dataclass(frozen=True, eq=False)
class ImageVectors:
    """The outputs of the networks for one image.

    whole: root of EfficientNet-Lite2's map, pooled over the image, `(CHANNELS,)`. parts: the same of its parts in
    row-major order, `(PARTS, CHANNELS)`. things: what the detector sees, best first. pooled: root of the map, pooled
    inside the box of each thing, `(things, CHANNELS)`. others: detections summed by class, the detector's pooled maps,
    colors and roots of the probabilities of ImageNet's classes, `(sum(OTHERS),)`.
    """

    whole: np.ndarray
    parts: np.ndarray
    things: Things
    pooled: np.ndarray
    others: np.ndarray


@dataclass(frozen=True, eq=False)
class Vision:
    """The two networks, EfficientNet-Lite2 and NanoDet-Plus-m, with weight and bias of the first one's classifier."""

    lite2: Any
    nanodet: Any
    weight: np.ndarray
    bias: np.ndarray

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the networks of a folder; raise LegendaError for a file that is missing or damaged."""
        lite2, nanodet = open_sessions([folder / f"{name}.onnx" for name in ("lite2", "nanodet")], _HINT)
        classifier = load_arrays(folder / "classifier.safetensors", _HINT)
        return cls(lite2, nanodet, classifier["classifier.weight"], classifier["classifier.bias"])

    def __call__(self, image: Image.Image) -> ImageVectors:
        """Return the vectors of an RGB image of any size and aspect."""
        pixels, maps = self._map(image)
        larger = _resize(image, _DETECTION_SIDE / max(image.size))
        anchors, stages = self.nanodet.run(None, {"images": larger[np.newaxis]})
        things = detect(anchors[0], *larger.shape[:2])
        height, width = maps.shape[1:]
        cells = maps.reshape(CHANNELS, -1)
        parts = box_weights(part_boxes(), height, width) @ cells.T
        pooled = box_weights(things.boxes, height, width) @ cells.T
        mean = cells.mean(1)
        blocks = [
            summarize(things, _sigmoid(anchors[0, :CLASSES].max(1))),
            np.sqrt(stages[0].clip(0)),
            colors(pixels),
            np.sqrt(self._probabilities(mean)),
        ]
        return ImageVectors(np.sqrt(mean), np.sqrt(parts), things, np.sqrt(pooled), np.concatenate(blocks))

    def classify(self, image: Image.Image) -> np.ndarray:
        """Return the probabilities of ImageNet's classes for an RGB image, `(1000,)`."""
        return self._probabilities(self._map(image)[1].reshape(CHANNELS, -1).mean(1))

    def _map(self, image: Image.Image) -> tuple[np.ndarray, np.ndarray]:
        """Return the pixels that EfficientNet-Lite2 reads of an image, and its map `(CHANNELS, height, width)`."""
        pixels = _resize(image, (_AREA / (image.width * image.height)) ** 0.5)
        (maps,) = self.lite2.run(None, {"images": pixels[np.newaxis]})
        return pixels, maps[0]

    def _probabilities(self, mean: np.ndarray) -> np.ndarray:
        return np.exp(log_softmax(self.weight @ mean + self.bias))


@cache
def load_vision() -> Vision:
    """Return the packaged networks; raise LegendaError for a file that is missing or damaged."""
    return Vision.load(ASSETS / PACKAGED)


def _resize(image: Image.Image, scale: float) -> np.ndarray:
    """Return the pixels of a scaled image, whose sides are multiples of 32, `(H, W, 3)`."""
    sides = (round(side * scale / _STRIDE) * _STRIDE for side in image.size)
    width, height = (min(max(side, _MIN_SIDE), 2 * _DETECTION_SIDE) for side in sides)
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0))


def part_boxes() -> np.ndarray:
    """Return the boxes of the parts, each half as wide and high as the image, `(PARTS, 4)`."""
    y, x = np.divmod(np.arange(PARTS), 3)
    corners = np.stack([x, y], axis=1) / 4
    return np.concatenate([corners, corners + 0.5], axis=1).astype(np.float32)


def box_weights(boxes: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return the share of each cell of a map in each box, `(boxes, height * width)`; rows sum to 1.

    A box narrower than a cell counts as one cell wide.
    """

    def shares(low: np.ndarray, high: np.ndarray, cells: int) -> np.ndarray:
        half = ((high - low) / 2).clip(0.5 / cells)
        middle = np.minimum(np.maximum((low + high) / 2, half), 1 - half)
        low, high, edges = (middle - half)[:, None], (middle + half)[:, None], np.arange(cells + 1) / cells
        return (np.minimum(high, edges[1:]) - np.maximum(low, edges[:-1])).clip(0)

    left, top, right, bottom = boxes.T
    weights = shares(top, bottom, height)[:, :, None] * shares(left, right, width)[:, None]
    return (weights.reshape(-1, height * width) / weights.sum((1, 2)).clip(1e-9)[:, None]).astype(np.float32)


def colors(pixels: np.ndarray) -> np.ndarray:
    """Return the roots of a histogram of 4 x 4 x 4 colors, and the mean color of 3 x 3 cells, `(64 + 27,)`.

    pixels: `(H, W, 3)`, uint8.
    """
    red, green, blue = (pixels // 64).reshape(-1, 3).T
    histogram = np.bincount(16 * red + 4 * green + blue, minlength=64) / red.size
    sums = pixels.astype(np.float32)
    for axis, size in enumerate(pixels.shape[:2]):
        bounds = [(size * cell // 3, -(-size * (cell + 1) // 3)) for cell in range(3)]
        sums = np.stack([sums.take(range(*bound), axis).mean(axis) for bound in bounds], axis)
    return np.concatenate([np.sqrt(histogram), sums.transpose(2, 0, 1).reshape(-1) / 255]).astype(np.float32)
