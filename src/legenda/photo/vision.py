"""What the two networks of the extractor `photo` compute of an image, whose aspect is kept.

MobileNetV2 1.0 for about 224 x 224 pixels, normalization folded into the convolutions; and NanoDet-Plus-m (COCO's 80
classes).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.models.weights import load_tensors
from legenda.photo.layout import CLASSES

_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks and first stride of each stage (Sandler et al., CVPR 2018, Table 2)."""


class _Conv(nn.Conv2d):
    """A convolution with TensorFlow's padding, which is asymmetric for a stride of 2."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the map, of ceil(size / stride) cells on each side."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        totals = [max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in input.shape[-2:]]
        if all(total % 2 == 0 for total in totals):  # F.pad would copy the map
            halves = [total // 2 for total in totals]
            return F.conv2d(input, self.weight, self.bias, self.stride, halves, groups=self.groups)
        pads = [pad for total in reversed(totals) for pad in (total // 2, total - total // 2)]
        return super().forward(F.pad(input, pads))


def _conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(_Conv(inputs, outputs, kernel, stride, groups=groups), nn.ReLU6(inplace=True))


class _Block(nn.Module):
    """An inverted residual block."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        first = [_conv(inputs, inner)] if expansion > 1 else []
        self.conv = nn.Sequential(*first, _conv(inner, inner, 3, stride, inner), _Conv(inner, outputs, 1))
        self.has_skip = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the block."""
        return x + self.conv(x) if self.has_skip else self.conv(x)


class MobileNetV2(nn.Module):
    """Map RGB images in -1..1 `(B, 3, H, W)` to `(B, 1280, H / 32, W / 32)`; `classifier` takes the mean of a map."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv(3, 32, 3, 2)]
        channels = 32
        for expansion, outputs, blocks, stride in _STAGES:
            for block in range(blocks):
                layers.append(_Block(channels, outputs, stride if block == 0 else 1, expansion))
                channels = outputs
        self.features = nn.Sequential(*layers, _conv(channels, 1280))
        self.classifier = nn.Linear(1280, 1001)

    def forward(self, x: Tensor) -> Tensor:
        """Return the last map."""
        return self.features(x.contiguous(memory_format=torch.channels_last))


_STRIDES = (8, 16, 32, 64)
_BINS = 8
"""Bins of the distribution of each side's distance, in strides."""
_BGR_MEAN, _BGR_STD = (103.53, 116.28, 123.675), (57.375, 57.12, 58.395)
_CANDIDATES, _MOST_BOXES, _MAX_OVERLAP, _MIN_SCORE = 300, 30, 0.6, 0.15


_WIDTHS, _UNITS, _WIDTH = (116, 232, 464), (4, 8, 4), 96
"""Channels and units of the backbone's stages, and channels after it."""


def _leaky(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups)
    return nn.Sequential(convolution, nn.LeakyReLU(0.1))


def _depthwise(channels: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, channels, kernel, stride, kernel // 2, groups=channels)


def _separable(stride: int) -> nn.Sequential:
    """Return a depthwise convolution and one over the channels."""
    return nn.Sequential(_leaky(_WIDTH, _WIDTH, 5, stride, _WIDTH), _leaky(_WIDTH, _WIDTH))


class _ShuffleUnit(nn.Module):
    """A unit of ShuffleNetV2: half of the channels pass, or are subsampled (Ma et al., ECCV 2018, Figure 3)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half, read = outputs // 2, inputs if stride == 2 else outputs // 2
        self.shortcut = nn.Sequential(_depthwise(inputs, 3, 2), _leaky(inputs, half)) if stride == 2 else None
        self.branch = nn.Sequential(_leaky(read, half), _depthwise(half, 3, stride), _leaky(half, half))

    def forward(self, x: Tensor) -> Tensor:
        """Return the map, with the channels of both halves in turn."""
        kept, x = x.chunk(2, 1) if self.shortcut is None else (self.shortcut(x), x)
        return F.channel_shuffle(torch.cat([kept, self.branch(x)], 1), 2)


class _Ghost(nn.Module):
    """Half of the channels by a convolution, and the others from these by a cheap one (Han et al., CVPR 2020)."""

    def __init__(self, inputs: int, *, act: bool) -> None:
        super().__init__()
        half = _WIDTH // 2
        self.primary = _leaky(inputs, half) if act else nn.Sequential(nn.Conv2d(inputs, half, 1))
        self.cheap = _leaky(half, half, 3, groups=half) if act else nn.Sequential(_depthwise(half, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Return the map of both halves."""
        x = self.primary(x)
        return torch.cat([x, self.cheap(x)], 1)


class _Fusion(nn.Module):
    """Two ghost modules and a shortcut, from two maps of one size to one."""

    def __init__(self) -> None:
        super().__init__()
        self.ghosts = nn.Sequential(_Ghost(2 * _WIDTH, act=True), _Ghost(_WIDTH, act=False))
        self.shortcut = nn.Sequential(_depthwise(2 * _WIDTH, 5), nn.Conv2d(2 * _WIDTH, _WIDTH, 1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the fused map."""
        both = torch.cat([x, y], 1)
        return self.ghosts(both) + self.shortcut(both)


class NanoDet(nn.Module):
    """NanoDet-Plus-m: ShuffleNetV2 1.0, fusions up and down its three maps, a fourth map, and a head for each."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_leaky(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1))
        self.stages = nn.ModuleList()
        for inputs, outputs, units in zip((24, *_WIDTHS[:-1]), _WIDTHS, _UNITS, strict=True):
            others = (_ShuffleUnit(outputs, outputs, 1) for _ in range(units - 1))
            self.stages.append(nn.Sequential(_ShuffleUnit(inputs, outputs, 2), *others))
        self.reduce = nn.ModuleList(_leaky(width, _WIDTH) for width in _WIDTHS)
        self.up, self.down = (nn.ModuleList(_Fusion() for _ in range(2)) for _ in range(2))
        self.subsample = nn.ModuleList(_separable(2) for _ in range(2))
        self.extra = nn.ModuleList(_separable(2) for _ in range(2))
        self.heads = nn.ModuleList(
            nn.Sequential(_separable(1), _separable(1), nn.Conv2d(_WIDTH, CLASSES + 4 * _BINS, 1)) for _ in _STRIDES
        )

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return outputs `(B, 80 + 32, anchors)` and the backbone's three maps for RGB images in 0..255."""
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (_BGR_MEAN, _BGR_STD))
        x, maps = self.stem((images.flip(1) - mean) / std), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        fine, middle, coarse = (reduce(x) for reduce, x in zip(self.reduce, maps, strict=True))
        middle = self.up[0](_double(coarse), middle)
        fine = self.up[1](_double(middle), fine)
        middle = self.down[0](self.subsample[0](fine), middle)
        last = self.down[1](self.subsample[1](middle), coarse)
        levels = (fine, middle, last, self.extra[0](coarse) + self.extra[1](last))
        return torch.cat([head(x).flatten(2) for head, x in zip(self.heads, levels, strict=True)], 2), maps


def _double(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


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
    """Return what non-maximum suppression in each class keeps of the anchors' boxes and scores `(anchors, 80)`.

    A box is dropped that overlaps a better one of its class by more than the limit.
    """
    best, classes = scores.max(1)
    chosen = best.topk(min(_CANDIDATES, len(best))).indices
    chosen = chosen[best[chosen] >= _MIN_SCORE]
    boxes, best, classes = boxes[chosen], best[chosen], classes[chosen]
    corners, labels = boxes.numpy(), classes.numpy()
    low = np.maximum(corners[:, np.newaxis, :2], corners[:, :2])
    high = np.minimum(corners[:, np.newaxis, 2:], corners[:, 2:])
    common = (high - low).clip(0).prod(axis=2)
    area = (corners[:, 2:] - corners[:, :2]).prod(axis=1)
    rivals = common > _MAX_OVERLAP * (area[:, np.newaxis] + area - common)
    rivals &= labels[:, np.newaxis] == labels
    left, kept = np.ones(len(corners), bool), []
    for index in range(len(corners)):
        if left[index]:
            kept.append(index)
            left &= ~rivals[index]
    kept = torch.tensor(kept[:_MOST_BOXES], dtype=torch.long)
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
            mobilenet, nanodet = MobileNetV2().eval(), NanoDet().eval()
        for network, name in ((mobilenet, "mobilenet"), (nanodet, "nanodet")):
            weights = load_tensors(folder / f"{name}.safetensors", "install legenda again")
            network.load_state_dict(weights, assign=True)
        return cls(mobilenet.to(memory_format=torch.channels_last), nanodet)

    @torch.inference_mode()
    def __call__(self, image: Image.Image) -> ImageVectors:
        """Return the vectors of an RGB image of any size and aspect."""
        pixels = _resize(image, (_AREA / (image.width * image.height)) ** 0.5)
        maps = self.mobilenet(torch.cat([pixels, pixels.flip(3)]) / 127.5 - 1)
        larger = _resize(image, _DETECTION_SIDE / max(image.size))
        output, stages = self.nanodet(larger)
        boxes, scores = decode(output, *larger.shape[2:])
        things = suppress(boxes[0], scores[0])
        height, width = maps.shape[2:]
        cells = maps[0].flatten(1)  # (1280, cells)
        parts = cells @ box_weights(part_boxes(), height, width).T
        pooled = cells @ box_weights(things.boxes, height, width).T
        stage_means = torch.cat([pool for stage in stages for pool in (stage.mean((2, 3)), stage.amax((2, 3)))], dim=1)
        summary = torch.from_numpy(summarize(things, scores[0].amax(0)))
        mean = maps.mean((0, 2, 3))
        classes = self.mobilenet.classifier(mean).softmax(0).sqrt()
        others = torch.cat([summary, stage_means[0].clamp(min=0).sqrt(), _colors(pixels)[0], classes])
        return ImageVectors(mean.sqrt(), parts.T.sqrt(), things, pooled.T.sqrt(), others)


def _resize(image: Image.Image, scale: float) -> Tensor:
    """Return the pixels of a scaled image, whose sides are multiples of 32, `(1, 3, H, W)`."""
    sides = (round(side * scale / _STRIDE) * _STRIDE for side in image.size)
    width, height = (min(max(side, _MIN_SIDE), 2 * _DETECTION_SIDE) for side in sides)
    resized = np.asarray(image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0))
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
        low, high, edges = (middle - half)[:, None], (middle + half)[:, None], torch.arange(cells + 1) / cells
        return (torch.minimum(high, edges[1:]) - torch.maximum(low, edges[:-1])).clamp(min=0)

    left, top, right, bottom = boxes.unbind(1)
    weights = shares(top, bottom, height).unsqueeze(2) * shares(left, right, width).unsqueeze(1)
    return weights.flatten(1) / weights.sum((1, 2)).clamp(min=1e-9).unsqueeze(1)


def _colors(pixels: Tensor) -> Tensor:
    """Return the roots of a histogram of 4 x 4 x 4 colors, and the mean color of 3 x 3 cells, `(B, 64 + 27)`."""
    red, green, blue = (pixels.byte() // 64).unbind(1)
    codes = (16 * red + 4 * green + blue).flatten(1)
    histogram = torch.stack([image.bincount(minlength=64) for image in codes]) / codes.shape[1]
    return torch.cat([histogram.sqrt(), F.adaptive_avg_pool2d(pixels / 255, 3).flatten(1)], dim=1)
