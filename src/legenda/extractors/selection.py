"""The rule of Bottom-Up attention (Anderson et al., CVPR 2018) for the number of regions of an image."""

import numpy as np
from torch import Tensor
from torch.nn import functional as F

MIN_REGIONS, MAX_REGIONS, MIN_CONFIDENCE = 10, 100, 0.2
"""Regions with at least this confidence are kept, but no fewer and no more than these."""


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
