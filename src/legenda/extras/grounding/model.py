"""MCAN for grounding: a score and a box for each region (MILVLG/mmnas; Yu et al., ACM MM 2020).

It is the setting of MD-SAN (section VI-B).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.attention import StdLayerNorm
from legenda.errors import DataError
from legenda.extractors.detection import decode_deltas
from legenda.extras.vqa.model import AttentionPool, CoAttentionConfig, CoAttentionModel
from legenda.models.base import Model, inference
from legenda.regions import Regions


class GroundingConfig(CoAttentionConfig):
    """MCAN for grounding as released, without biases in the projections of attention."""

    projection_bias: ClassVar[bool] = False

    def build(self) -> Model:
        """Return a new model with random weights."""
        return Grounder(self)


class Grounder(CoAttentionModel[GroundingConfig]):
    """The backbone, the pooled expression added to each region, and a score and four deltas per region."""

    def __init__(self, config: GroundingConfig) -> None:
        super().__init__(config)
        self.pool_words = AttentionPool(config)
        self.region = nn.Linear(config.dim, config.pooled_dim)
        self.norm = StdLayerNorm(config.pooled_dim)
        self.score = nn.Linear(config.pooled_dim, 1)
        self.deltas = nn.Linear(config.pooled_dim, 4)

    def forward(
        self, regions: Regions, expression: Int[Tensor, "B L"]
    ) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N 4"]]:
        """Return scores, the logits of a softmax over regions, and deltas as defined by `encode_deltas`.

        Masked regions have a score of minus infinity.
        """
        states = self.attend(regions, expression)
        pooled = self.pool_words(states.tokens, states.token_mask)
        joined = self.norm(pooled.unsqueeze(1) + self.region(states.regions))
        scores = self.score(joined).squeeze(-1).masked_fill(~regions.mask_or_ones, float("-inf"))
        return scores, self.deltas(joined)

    def locate(self, regions: Regions, expressions: Sequence[Sequence[str]], sizes: np.ndarray) -> np.ndarray:
        """Return the box of each tokenized expression, `(B, 4)` as x1 y1 x2 y2 in pixels, in evaluation mode.

        The box of the region with the highest score, refined by its deltas and clipped to the image. sizes: width
        and height of the images in pixels, `(B, 2)`. Raise CheckpointError when the model has no vocabulary.
        """
        expression = self.ids(expressions)
        with inference(self) as model:
            scores, deltas = model(regions, expression)
        rows, best = np.arange(len(sizes)), scores.argmax(dim=-1).cpu().numpy()
        chosen = torch.from_numpy(in_pixels(regions, sizes)[rows, best])
        scaled = deltas[rows, best].float().cpu() * torch.tensor(DELTA_SCALE)
        return clip_boxes(decode_deltas(chosen, scaled).numpy(), sizes)


def in_pixels(regions: Regions, sizes: np.ndarray) -> np.ndarray:
    """Return the boxes `(B, N, 4)` in pixels of images of `sizes` `(B, 2)`, width and height."""
    if regions.boxes is None:
        raise DataError("grounding needs the boxes of regions; give Regions(features, boxes)")
    return regions.boxes.cpu().numpy() * np.tile(sizes, 2)[:, np.newaxis]


DELTA_SCALE = (0.1, 0.1, 0.2, 0.2)
"""The standard deviations that deltas are divided by."""


def encode_deltas(boxes: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the deltas `(..., 4)` from boxes `(..., 4)` to the ground truth `(..., 4)`, as in R-CNN.

    The offset of the centers in widths and heights of the box, and the logarithms of the ratios of widths and heights,
    divided by DELTA_SCALE. Both edges belong to a box.
    """
    center, size = _center_and_size(boxes)
    true_center, true_size = _center_and_size(truth)
    deltas = np.concatenate([(true_center - center) / size, np.log(true_size / size)], axis=-1)
    return deltas / np.asarray(DELTA_SCALE, deltas.dtype)


def clip_boxes(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return boxes `(..., 4)` clipped to images of `sizes` `(..., 2)`, width and height."""
    last = np.concatenate([sizes, sizes], axis=-1) - 1
    return np.clip(boxes, 0, last)


def _center_and_size(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    size = boxes[..., 2:] - boxes[..., :2] + 1
    return boxes[..., :2] + size / 2, size
