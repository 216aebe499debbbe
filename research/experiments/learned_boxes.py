"""SAN with a learned embedding of each region's absolute box: what geometry of pairs has to be better than."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from legenda.models.base import Encoder
from legenda.models.registry import register_model
from legenda.models.transformer import TransformerConfig, TransformerEncoder


@register_model("learned_boxes", summary="SAN plus two linear layers of each region's absolute box")
class LearnedBoxesConfig(TransformerConfig):
    """Options of SAN."""

    def build_encoder(self) -> Encoder:
        """Return a new encoder with random weights."""
        return LearnedBoxesEncoder(self)


class LearnedBoxesEncoder(TransformerEncoder):
    """Adds Linear, ReLU and Linear of left, top, right, bottom, width and height to the regions."""

    def __init__(self, config: LearnedBoxesConfig) -> None:
        """Create the layers."""
        super().__init__(config)
        self.needs_boxes = True
        self.boxes = nn.Sequential(nn.Linear(6, config.dim), nn.ReLU(), nn.Linear(config.dim, config.dim))

    def _add_positions(self, x: Float[Tensor, "B N D"], boxes: Float[Tensor, "B N 4"] | None) -> Float[Tensor, "B N D"]:
        assert boxes is not None
        sizes = boxes[..., 2:] - boxes[..., :2]
        return x + self.boxes(torch.cat([boxes, sizes], dim=-1))
