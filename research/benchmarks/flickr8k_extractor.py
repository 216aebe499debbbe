"""Regions from two small networks, MobileNetV2 and NanoDet-Plus, for the study of research/results/flickr8k.md.

An extractor for `--extractor`. The folder of the two networks' code and weights is named by the environment variable
BACKBONES; nothing of them is part of this project.
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

FOLDER = Path(os.environ["BACKBONES"])
sys.path.insert(0, str(FOLDER))

import mobilenet_v2  # noqa: E402 - of the folder above
import nanodet_plus  # noqa: E402

SIDE, DETECTOR_SIDE, CELLS, CLASSES = 224, 416, 7, 80
MOST, LEAST_SCORE, OVERLAP = 12, 0.1, 0.6

_backbone = mobilenet_v2.load(str(FOLDER / "mobilenet_v2_1.0_224_int8.safetensors"))
_backbone = _backbone.to(memory_format=torch.channels_last, dtype=torch.bfloat16)
_detector = nanodet_plus.NanoDetPlus(str(FOLDER / "nanodet_plus_m_416"))
torch.set_num_threads(1)


def extract(images: list[Image.Image]) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """For each RGB image: the features of 49 cells and of the boxes detected in it, and where they lie in 0..1."""
    with torch.inference_mode():
        return describe(_pixels(images, SIDE), [_detect(pixels) for pixels in _pixels(images, DETECTOR_SIDE)])


def describe(
    pixels: torch.Tensor, found: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Features and boxes of images `(P, 3, 224, 224)` in 0..255 whose detections are known.

    found: for each image boxes `(N, 4)` in 0..1, their classes `(N,)` and their scores `(N,)`.
    Returns for each `(49 + N, 1366)` features: the map's mean inside the region, the best score of every class among
    the boxes that cover it (weighted by how much they do), and the colors of its upper and lower half.
    """
    with torch.inference_mode():
        maps = _backbone.features((pixels / 127.5 - 1).bfloat16().contiguous(memory_format=torch.channels_last)).float()
        colors = F.adaptive_avg_pool2d(pixels / 127.5 - 1, 4 * CELLS)
        return [_regions(*of) for of in zip(maps, colors, *zip(*found, strict=True), strict=True)]


def _regions(
    cells: torch.Tensor, colors: torch.Tensor, boxes: torch.Tensor, classes: torch.Tensor, scores: torch.Tensor
) -> tuple[np.ndarray, np.ndarray]:
    regions = torch.cat([_grid(), boxes])
    middle = (regions[:, 1] + regions[:, 3]) / 2
    upper = torch.stack([regions[:, 0], regions[:, 1], regions[:, 2], middle], 1)
    lower = torch.stack([regions[:, 0], middle, regions[:, 2], regions[:, 3]], 1)
    covered = _intersections(regions, boxes) / _areas(regions)[:, None].clamp(min=1e-6)
    kinds = torch.zeros(len(regions), CLASSES)
    kinds.scatter_reduce_(1, classes.expand(len(regions), -1), covered * scores, "amax")
    features = [_pool(cells, regions), 2 * kinds, 2 * _pool(colors, upper), 2 * _pool(colors, lower)]
    return torch.cat(features, 1).half().numpy(), regions.numpy()


def _grid() -> torch.Tensor:
    """The boxes of the map's cells, row by row."""
    rows, columns = torch.meshgrid(torch.arange(CELLS), torch.arange(CELLS), indexing="ij")
    return torch.stack([columns, rows, columns + 1, rows + 1], -1).view(-1, 4) / CELLS


def _pool(values: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Means of a map `(D, H, W)` inside boxes `(N, 4)`, cells counted by the share of them that lies inside."""
    weights = []
    for axis, size in ((1, values.shape[1]), (0, values.shape[2])):
        edges = torch.arange(size + 1) / size
        inside = torch.minimum(boxes[:, axis + 2, None], edges[1:]) - torch.maximum(boxes[:, axis, None], edges[:-1])
        inside = inside.clamp(min=1e-4)
        weights.append(inside / inside.sum(1, keepdim=True))
    return torch.einsum("nh,nw,dhw->nd", *weights, values)


def _areas(boxes: torch.Tensor) -> torch.Tensor:
    return (boxes[:, 2:] - boxes[:, :2]).prod(1)


def _intersections(these: torch.Tensor, those: torch.Tensor) -> torch.Tensor:
    least = torch.maximum(these[:, None, :2], those[None, :, :2])
    most = torch.minimum(these[:, None, 2:], those[None, :, 2:])
    return (most - least).clamp(min=0).prod(-1)


def _detect(pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    boxes, chances = (found[0] for found in _detector.decode(_detector.forward(pixels[None]), DETECTOR_SIDE))
    scores, classes = chances.max(1)
    order = scores.argsort(descending=True)[: 20 * MOST]
    boxes, scores, classes = boxes[order] / DETECTOR_SIDE, scores[order], classes[order]
    real = (boxes[:, 2:] - boxes[:, :2]).amin(1) > 1 / SIDE
    real &= (scores >= LEAST_SCORE) | (torch.arange(len(scores)) == 0)
    if not real.any():
        return torch.tensor([[0.0, 0.0, 1.0, 1.0]]), classes[:1], scores[:1]
    boxes, scores, classes = boxes[real], scores[real], classes[real]
    common = _intersections(boxes, boxes)
    areas = _areas(boxes)
    double = (common / (areas[:, None] + areas - common) > OVERLAP) & (classes[:, None] == classes)
    kept: list[int] = []
    for at in range(len(boxes)):
        if len(kept) < MOST and not double[at, kept].any():
            kept.append(at)
    return boxes[kept], classes[kept], scores[kept]


def _pixels(images: list[Image.Image], side: int) -> torch.Tensor:
    sized = [image.resize((side, side), Image.Resampling.BICUBIC) for image in images]
    return torch.stack([torch.from_numpy(np.array(image)) for image in sized]).permute(0, 3, 1, 2).float()
