"""NanoDet-Plus-m (COCO's 80 classes) as a graph of PyTorch's functions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from legenda.io import read_json
from legenda.models.checkpoint import load_tensors

CLASSES = 80
_STRIDES = (8, 16, 32, 64)
_BINS = 8
"""Bins of the distribution of each side's distance, in strides."""
_BGR_MEAN, _BGR_STD = (103.53, 116.28, 123.675), (57.375, 57.12, 58.395)
_STAGE_ENDS = (3, 11, 15)
"""The channel shuffles, counted from 0, that end the three stages of the backbone."""
_CANDIDATES, _MOST_BOXES, _MAX_OVERLAP, _MIN_SCORE = 300, 30, 0.6, 0.15


@dataclass(frozen=True, eq=False)
class NanoDet:
    """The detector: operators (type, name, inputs, outputs, parameters) in order, and their weights."""

    operators: list[list[Any]]
    weights: dict[str, Tensor]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the detector of a folder; raise LegendaError for a file that is missing or damaged."""
        hint = "install legenda again"
        weights = load_tensors(folder / "nanodet.safetensors", hint)
        operators = read_json(folder / "nanodet.json", hint)
        return cls(operators, {name: tensor.float() for name, tensor in weights.items()})

    def __call__(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return outputs `(B, 80 + 32, anchors)` and the backbone's three maps for RGB images in 0..255."""
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (_BGR_MEAN, _BGR_STD))
        values: dict[str, Tensor] = {}
        output, maps = (images.flip(1) - mean) / std, []
        for kind, name, inputs, outputs, parameters in self.operators:
            arguments = [values[key] for key in inputs] or [output]
            result = self._apply(kind, name, arguments, parameters, len(outputs))
            values.update(zip(outputs, result, strict=True))
            output = result[0]
            if kind == "ShuffleChannel":
                maps.append(output)
        return output, [maps[index] for index in _STAGE_ENDS]

    def detect(self, output: Tensor, height: int, width: int) -> tuple[Things, Tensor]:
        """Return the things of the first image, best first, and its best score of each class `(80,)`."""
        boxes, scores = decode(output, height, width)
        return suppress(boxes[0], scores[0]), scores[0].amax(0)

    def _apply(self, kind: str, name: str, x: list[Tensor], parameters: dict[str, Any], outputs: int) -> list[Tensor]:
        """Return the outputs of one operator; the keys of its parameters are ncnn's."""

        def number(key: int, default: int = 0) -> int:
            return int(float(parameters.get(str(key), default)))

        match kind:
            case "Input":
                return x
            case "Convolution" | "ConvolutionDepthWise":
                weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
                y = F.conv2d(x[0], weight, bias, number(3, 1), number(4), 1, number(7, 1))
                if number(9) == 2:
                    return [F.leaky_relu(y, float(parameters["-23310"].split(",")[1]))]
                return [y.relu() if number(9) == 1 else y]
            case "Pooling":
                return [F.max_pool2d(x[0], number(1), number(2, 1), number(3))]
            case "Split":
                return [x[0]] * outputs
            case "Slice":
                return list(x[0].chunk(2, 1))
            case "Concat":
                return [torch.cat(x, 1 if x[0].dim() == 4 else 2)]
            case "ShuffleChannel":
                return [F.channel_shuffle(x[0], number(0))]
            case "Interp":
                return [F.interpolate(x[0], scale_factor=2, mode="bilinear", align_corners=False)]
            case "BinaryOp":
                return [x[0] + x[1]]
            case _:  # Reshape
                return [x[0].flatten(2)]


def decode(output: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return boxes `(B, anchors, 4)` in 0..1 and class probabilities `(B, anchors, 80)` of the detector's output.

    height, width: of the detector's input, in pixels.
    """
    boxes, start = [], 0
    for stride in _STRIDES:
        rows, columns = -(-height // stride), -(-width // stride)
        bins = output[:, CLASSES:, start : start + rows * columns].unflatten(1, (4, _BINS))
        cell = torch.arange(rows * columns)
        start += rows * columns
        distances = (bins.softmax(2) * torch.arange(float(_BINS)).view(1, 1, _BINS, 1)).sum(2) * stride
        y, x = cell // columns * stride, cell % columns * stride
        left, top, right, bottom = distances.unbind(1)
        corners = [(x - left) / width, (y - top) / height, (x + right) / width, (y + bottom) / height]
        boxes.append(torch.stack(corners, 2))
    return torch.cat(boxes, 1).clamp(0, 1), output[:, :CLASSES].sigmoid().transpose(1, 2)


@dataclass(frozen=True, eq=False)
class Things:
    """Detected things, best first: boxes `(n, 4)` as x1 y1 x2 y2 in 0..1, scores `(n,)` and classes `(n,)` of COCO."""

    boxes: Tensor
    scores: Tensor
    classes: Tensor


def suppress(boxes: Tensor, scores: Tensor) -> Things:
    """Return what non-maximum suppression in each class keeps of the anchors' boxes and scores `(anchors, 80)`."""
    best, classes = scores.max(1)
    chosen = best.topk(min(_CANDIDATES, len(best))).indices
    chosen = chosen[best[chosen] >= _MIN_SCORE]
    boxes, best, classes = boxes[chosen], best[chosen], classes[chosen]
    kept = torch.tensor(_suppress(boxes.numpy(), classes.numpy()), dtype=torch.long)
    return Things(boxes[kept], best[kept], classes[kept])


def summarize(things: Things, best: Tensor) -> np.ndarray:
    """Return four numbers of each class, `(4 * 80,)`.

    The root of the best score of any anchor; then, of the things: the number above 0.4 and the sum of scores above 0.3,
    both as log(1 + x), and the sum of score times root of the area above 0.25.
    """
    score, label = things.scores.numpy(), things.classes.numpy()
    left, top, right, bottom = things.boxes.numpy().T
    root_area = np.sqrt(((right - left) * (bottom - top)).clip(0))

    def by_class(values: np.ndarray) -> np.ndarray:
        return np.bincount(label, values, minlength=CLASSES)

    counts, sums = by_class(score > 0.4), by_class(score * (score > 0.3))
    areas = by_class(score * root_area * (score > 0.25))
    return np.concatenate([np.sqrt(best.numpy()), np.log1p(counts), np.log1p(sums), areas]).astype(np.float32)


def _suppress(boxes: np.ndarray, classes: np.ndarray) -> list[int]:
    """Return the indices of boxes, best first, that overlap no better one of their class by more than the limit."""
    low = np.maximum(boxes[:, np.newaxis, :2], boxes[:, :2])
    high = np.minimum(boxes[:, np.newaxis, 2:], boxes[:, 2:])
    common = (high - low).clip(0).prod(axis=2)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    rivals = common > _MAX_OVERLAP * (area[:, np.newaxis] + area - common)
    rivals &= classes[:, np.newaxis] == classes
    left, kept = np.ones(len(boxes), bool), []
    for index in range(len(boxes)):
        if left[index]:
            kept.append(index)
            left &= ~rivals[index]
    return kept[:_MOST_BOXES]
