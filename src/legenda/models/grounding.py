"""Visual grounding on MCAN's backbone: scores of regions for an expression, and deltas of their boxes.

As in MILVLG/mmnas (Yu et al., 2020), whose setting MD-SAN uses (section VI-B).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.attention import StdLayerNorm
from legenda.errors import DataError
from legenda.metrics.boxes import clip_boxes, decode_deltas
from legenda.models.co_attention import CoAttentionModel, create_pool
from legenda.models.co_attention_config import GroundingConfig
from legenda.models.eval_mode import eval_mode
from legenda.regions import Regions


class Grounder(CoAttentionModel):
    """The backbone, the pooled expression added to each region, and a score and four deltas per region."""

    config: GroundingConfig

    def __init__(self, config: GroundingConfig) -> None:
        super().__init__(config, bias=False)
        self.pool_words = create_pool(config)
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
        with eval_mode(self):
            scores, deltas = self(regions, expression)
        rows, best = np.arange(len(sizes)), scores.argmax(dim=-1).cpu().numpy()
        chosen = in_pixels(regions, sizes)[rows, best]
        return clip_boxes(decode_deltas(chosen, deltas.float().cpu().numpy()[rows, best]), sizes)


def in_pixels(regions: Regions, sizes: np.ndarray) -> np.ndarray:
    """Return the boxes `(B, N, 4)` in pixels of images of `sizes` `(B, 2)`, width and height."""
    if regions.boxes is None:
        raise DataError("grounding needs the boxes of regions; give Regions(features, boxes)")
    return regions.boxes.cpu().numpy() * np.tile(sizes, 2)[:, np.newaxis]
