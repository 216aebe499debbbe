"""What the two networks of the extractor `photo` compute of an image, whose aspect is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from legenda.extractors.photo.mobilenet import MobileNetV2
from legenda.extractors.photo.nanodet import NanoDet, Things, summarize
from legenda.models.checkpoint import load_tensors

PARTS = 9
"""Overlapping parts of an image, 3 x 3."""
_STRIDE = 32
"""Sides are multiples of it, so that no network pads its maps."""
_DETECTION_SIDE = 416
_AREA = 224 * 224
_MIN_SIDE = 96


@dataclass(frozen=True, eq=False)
class ImageVectors:
    """What the networks compute of one image.

    whole: root of MobileNetV2's map, pooled over the image and its mirror image, `(1280,)`. parts: the same of its
    parts in row-major order, `(PARTS, 1280)`. things: what the detector sees, best first. pooled: root of the map,
    pooled inside the box of each thing, `(things, 1280)`. others: detections summed by class, the detector's pooled
    maps, colors and roots of the probabilities of ImageNet's classes, `(320 + 1624 + 91 + 1001,)`.
    """

    whole: Tensor
    parts: Tensor
    things: Things
    pooled: Tensor
    others: Tensor


@dataclass(frozen=True, eq=False)
class Vision:
    """The two networks, MobileNetV2 and NanoDet-Plus."""

    mobilenet: MobileNetV2
    nanodet: NanoDet

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the networks of a folder; raise LegendaError for a file that is missing or damaged."""
        with torch.device("meta"):  # weights are not drawn first
            mobilenet = MobileNetV2()
        weights = load_tensors(folder / "mobilenet.safetensors", "install legenda again")
        mobilenet.load_state_dict(weights, assign=True)
        return cls(mobilenet.eval().to(memory_format=torch.channels_last), NanoDet.load(folder))

    @torch.inference_mode()
    def __call__(self, image: Image.Image) -> ImageVectors:
        """Return the vectors of an RGB image of any size and aspect."""
        pixels = _resize(image, area_size(*image.size))
        maps = self.mobilenet(torch.cat([pixels, pixels.flip(3)]) / 127.5 - 1)
        width, height = long_side_size(*image.size)
        output, stages = self.nanodet(_resize(image, (width, height)))
        things, scores = self.nanodet.detect(output, height, width)
        height, width = maps.shape[2:]
        cells = maps[0].flatten(1)  # (1280, cells)
        parts = cells @ box_weights(part_boxes(), height, width).T
        pooled = cells @ box_weights(things.boxes, height, width).T
        stage_means = torch.cat([pool for stage in stages for pool in (stage.mean((2, 3)), stage.amax((2, 3)))], dim=1)
        summary = torch.from_numpy(summarize(things, scores))
        mean = maps.mean((0, 2, 3))
        classes = self.mobilenet.classifier(mean).softmax(0).sqrt()
        others = torch.cat([summary, stage_means[0].clamp(min=0).sqrt(), _colors(pixels)[0], classes])
        return ImageVectors(mean.sqrt(), parts.T.sqrt(), things, pooled.T.sqrt(), others)


def area_size(width: int, height: int) -> tuple[int, int]:
    """Return width and height of about 224 x 224 pixels with nearly the aspect of an image, multiples of 32."""
    root = (_AREA / (width * height)) ** 0.5
    return _round(width * root), _round(height * root)


def long_side_size(width: int, height: int) -> tuple[int, int]:
    """Return width and height with a long side of 416 and nearly the aspect of an image, multiples of 32."""
    scale = _DETECTION_SIDE / max(width, height)
    return _round(width * scale), _round(height * scale)


def _round(side: float) -> int:
    return min(max(round(side / _STRIDE) * _STRIDE, _MIN_SIDE), 2 * _DETECTION_SIDE)


def _resize(image: Image.Image, size: tuple[int, int]) -> Tensor:
    resized = np.asarray(image.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0))
    return torch.from_numpy(resized.copy()).permute(2, 0, 1).unsqueeze(0).float()


def part_boxes() -> Tensor:
    """Return the boxes of the parts, each half as wide and high as the image, `(PARTS, 4)`."""
    y, x = np.divmod(np.arange(PARTS), 3)
    corners = np.stack([x, y], axis=1) / 4
    return torch.from_numpy(np.concatenate([corners, corners + 0.5], axis=1).astype(np.float32))


def box_weights(boxes: Tensor, height: int, width: int) -> Tensor:
    """Return the share of each cell of a map in each box, `(boxes, height * width)`; rows sum to 1.

    A box narrower than a cell counts as one cell wide.
    """

    def shares(low: Tensor, high: Tensor, cells: int) -> Tensor:
        middle, half = (low + high) / 2, ((high - low) / 2).clamp(min=0.5 / cells)
        middle = torch.minimum(torch.maximum(middle, half), 1 - half)
        edges = torch.arange(cells + 1) / cells
        common = torch.minimum((middle + half)[:, None], edges[1:]) - torch.maximum(
            (middle - half)[:, None], edges[:-1]
        )
        return common.clamp(min=0)

    left, top, right, bottom = boxes.unbind(1)
    weights = shares(top, bottom, height).unsqueeze(2) * shares(left, right, width).unsqueeze(1)
    return weights.flatten(1) / weights.sum((1, 2)).clamp(min=1e-9).unsqueeze(1)


def _colors(pixels: Tensor) -> Tensor:
    """Return the roots of a histogram of 4 x 4 x 4 colors, and the mean color of 3 x 3 cells, `(B, 64 + 27)`."""
    red, green, blue = (pixels.byte() // 64).unbind(1)
    codes = (16 * red + 4 * green + blue).flatten(1)
    histogram = torch.stack([image.bincount(minlength=64) for image in codes]) / codes.shape[1]
    return torch.cat([histogram.sqrt(), F.adaptive_avg_pool2d(pixels / 255, 3).flatten(1)], dim=1)
