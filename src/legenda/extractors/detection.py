"""Detectors and grids: batches of images of one size, the rule for the number of regions, weights in files.

Padding images to a common size would change the features at the borders.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.errors import CheckpointError

T = TypeVar("T")
R = TypeVar("R")

SHORT_SIDE, LONG_SIDE = 600, 1000
"""Pixels to which Bottom-Up attention and the grids of Jiang et al. (CVPR 2020) resize the short side, and at most the
long one."""
MIN_REGIONS, MAX_REGIONS, MIN_CONFIDENCE = 10, 100, 0.2
"""Bottom-Up attention (Anderson et al., CVPR 2018) keeps the regions of at least this confidence, but no fewer and no
more than these."""


def resize_scale(size: tuple[int, int]) -> float:
    """Return the factor by which an image of this size is resized."""
    short, long = sorted(size)
    scale = SHORT_SIDE / short
    return LONG_SIDE / long if round(scale * long) > LONG_SIDE else scale


def resized_size(image: Image.Image) -> tuple[int, int]:
    """Return the width and height to which an image is resized."""
    scale = resize_scale(image.size)
    return max(1, round(scale * image.width)), max(1, round(scale * image.height))


def map_groups(function: Callable[[list[T]], list[R]], items: Sequence[T], key: Callable[[T], Hashable]) -> list[R]:
    """Return the results of a function of lists for all items, in their order; a list holds items of one key."""
    groups: dict[Hashable, list[int]] = {}
    for position, item in enumerate(items):
        groups.setdefault(key(item), []).append(position)
    results: dict[int, R] = {}
    for positions in groups.values():
        results.update(zip(positions, function([items[position] for position in positions]), strict=True))
    return [results[position] for position in range(len(items))]


def select_regions(
    features: Tensor, boxes: Tensor, confidence: Tensor, num_regions: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the selected regions of candidates (n, D), (n, 4) in 0..1 and (n,), the most confident first.

    num_regions: how many, where there are so many; None for those of the rule. Where every box is empty, return the
    most confident candidate with the whole image as its box.
    """
    nonempty = ((boxes[:, 2:] - boxes[:, :2]) > 1e-3).all(dim=1)
    if not nonempty.any():
        best = int(confidence.argmax())
        return features[best : best + 1].cpu().numpy(), np.array([[0, 0, 1, 1]], np.float32)
    features, boxes, confidence = features[nonempty], boxes[nonempty], confidence[nonempty]
    count = num_regions or int((confidence >= MIN_CONFIDENCE).sum().clamp(MIN_REGIONS, MAX_REGIONS))
    selected = confidence.argsort(descending=True)[:count]
    return features[selected].cpu().numpy(), F.relu(boxes[selected]).cpu().numpy()


def decode_deltas(boxes: Tensor, deltas: Tensor) -> Tensor:
    """Return the boxes that R-CNN's deltas, shifts relative to the size and log scales, make of boxes, all `(..., 4)`.

    As in R-CNN's code, x2 and y2 are one pixel larger than those of the encoded box, because the last pixel, which
    belongs to a box, is not subtracted again.
    """
    sizes = boxes[..., 2:] - boxes[..., :2] + 1
    centers = boxes[..., :2] + sizes / 2 + deltas[..., :2] * sizes
    halves = sizes * deltas[..., 2:].exp() / 2
    return torch.cat([centers - halves, centers + halves], dim=-1)


def load_state(model: nn.Module, state: dict[str, Tensor], path: Path, hint: str) -> None:
    """Load weights by name; raise CheckpointError naming one that is missing or of another shape."""
    loaded: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        tensor = torch.zeros((), dtype=torch.long) if name.endswith("num_batches_tracked") else state.get(name)
        if not isinstance(tensor, Tensor) or tensor.shape != value.shape:
            shape = tuple(tensor.shape) if isinstance(tensor, Tensor) else "nothing"
            raise CheckpointError(f"{path} has {shape} as {name}, where {tuple(value.shape)} is needed; {hint}")
        loaded[name] = tensor.to(value.dtype)
    model.load_state_dict(loaded, assign=True)
