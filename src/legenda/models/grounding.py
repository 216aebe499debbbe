"""Visual grounding on MCAN's backbone: which region an expression means, and how its box is to be moved.

As in MILVLG/mmnas, whose setting MD-SAN takes over (section VI-B); the paper of that code is Yu et al., 2020 (MMnas).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.attention import StdLayerNorm
from legenda.errors import UserError
from legenda.metrics.boxes import clip_boxes, decode_deltas
from legenda.models.co_attention import AttentionPool, CoAttentionConfig, CoAttentionModel
from legenda.regions import Regions


@dataclass(frozen=True, kw_only=True)
class GroundingConfig(CoAttentionConfig):
    """MCAN for grounding as released; its projections in attention have no bias."""

    def build(self) -> Grounder:
        """A new model with torch's own random weights, as in the release."""
        return Grounder(self)


class Grounder(CoAttentionModel):
    """The backbone, a pooled expression added to every region, and for each a score and four deltas."""

    config: GroundingConfig

    def __init__(self, config: GroundingConfig) -> None:
        super().__init__(config, bias=False)
        self.pool_words = AttentionPool(config)
        self.region = nn.Linear(config.dim, config.pooled_dim)
        self.norm = StdLayerNorm(config.pooled_dim)
        self.score = nn.Linear(config.pooled_dim, 1)
        self.deltas = nn.Linear(config.pooled_dim, 4)

    def forward(
        self, regions: Regions, expression: Int[Tensor, "B L"]
    ) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N 4"]]:
        """Scores, whose softmax over the regions is how probable each is, and deltas as `encode_deltas` makes them.

        Regions that the mask leaves out score minus infinity.
        """
        seen = self.attend(regions, expression)
        joined = self.norm(self.pool_words(seen.words, seen.heard).unsqueeze(1) + self.region(seen.regions))
        scores = self.score(joined).squeeze(-1).masked_fill(~regions.mask_or_ones, float("-inf"))
        return scores, self.deltas(joined)

    def locate(self, regions: Regions, expressions: Sequence[Sequence[str]], sizes: np.ndarray) -> np.ndarray:
        """The box that each tokenized expression means, `(B, 4)` as x1 y1 x2 y2 in pixels; without dropout.

        It is that of the region with the highest score, moved by its deltas and cut at the edges. sizes: width
        and height of the pictures in pixels, `(B, 2)`. Raises UserError when the model has no vocabulary.
        """
        expression = self.ids(expressions)
        mode = self.training
        self.eval()
        with torch.no_grad():
            scores, deltas = self(regions, expression)
        self.train(mode)
        rows, best = np.arange(len(sizes)), scores.argmax(dim=-1).cpu().numpy()
        chosen = in_pixels(regions, sizes)[rows, best]
        return clip_boxes(decode_deltas(chosen, deltas.float().cpu().numpy()[rows, best]), sizes)


def in_pixels(regions: Regions, sizes: np.ndarray) -> np.ndarray:
    """The regions' boxes `(B, N, 4)` in pixels of pictures of `sizes` `(B, 2)`, width and height."""
    if regions.boxes is None:
        raise UserError("grounding moves the boxes of regions; give Regions(features, boxes)")
    return regions.boxes.cpu().numpy() * np.tile(sizes, 2)[:, np.newaxis]
