"""SAN and MCAN with a learned embedding of each region's absolute box: what geometry of pairs has to be better than."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.extras.grounding.model import Grounder, GroundingConfig
from legenda.extras.vqa.model import CoAttentionConfig, CoAttentionModel, CoAttentionOutput, Mcan, McanConfig
from legenda.models.base import Encoder, Model
from legenda.models.registry import register_model
from legenda.models.transformer import TransformerConfig, TransformerEncoder
from legenda.regions import Regions


class BoxEmbedding(nn.Sequential):
    """Linear, ReLU and Linear of left, top, right, bottom, width and height."""

    def __init__(self, inner_dim: int, dim: int) -> None:
        """Create the layers; dim: channels of an embedding."""
        super().__init__(nn.Linear(6, inner_dim), nn.ReLU(), nn.Linear(inner_dim, dim))

    def forward(self, boxes: Float[Tensor, "B N 4"]) -> Float[Tensor, "B N D"]:
        """Return the embeddings of boxes."""
        return super().forward(torch.cat([boxes, boxes[..., 2:] - boxes[..., :2]], dim=-1))


@register_model("learned_boxes", summary="SAN plus two linear layers of each region's absolute box")
class LearnedBoxesConfig(TransformerConfig):
    """Options of SAN."""

    def build_encoder(self) -> Encoder:
        """Return a new encoder with random weights."""
        return LearnedBoxesEncoder(self)


class LearnedBoxesEncoder(TransformerEncoder):
    """Adds the embedding to the projected features."""

    def __init__(self, config: LearnedBoxesConfig) -> None:
        """Create the layers."""
        super().__init__(config)
        self.needs_boxes = True
        self.boxes = BoxEmbedding(config.dim, config.dim)

    def _add_positions(self, x: Float[Tensor, "B N D"], boxes: Float[Tensor, "B N 4"] | None) -> Float[Tensor, "B N D"]:
        assert boxes is not None
        return x + self.boxes(boxes)


class LearnedBoxesCoAttention(CoAttentionModel):
    """Adds the embedding to the features."""

    def __init__(self, config: CoAttentionConfig) -> None:
        """Create the layers."""
        super().__init__(config)
        self.needs_boxes = True
        self.boxes = BoxEmbedding(config.dim, config.feature_dim)

    def attend(self, regions: Regions, question: Int[Tensor, "B L"]) -> CoAttentionOutput:
        """Return the output of the backbone; raise DataError for regions that do not fit the model."""
        self.check_regions(regions)
        assert regions.boxes is not None
        return self.backbone(replace(regions, features=regions.features + self.boxes(regions.boxes)), question)


class LearnedBoxesMcan(LearnedBoxesCoAttention, Mcan):
    """MCAN with the embedding."""


class LearnedBoxesGrounder(LearnedBoxesCoAttention, Grounder):
    """MCAN for grounding with the embedding."""


@register_model("learned_boxes_mcan", summary="MCAN plus two linear layers of each region's absolute box", task="vqa")
class LearnedBoxesMcanConfig(McanConfig):
    """Options of MCAN."""

    def build(self) -> Model:
        """Return a new model with random weights."""
        return LearnedBoxesMcan(self)


@register_model("learned_boxes_grounding", summary="the same for grounding", task="grounding")
class LearnedBoxesGroundingConfig(GroundingConfig):
    """Options of MCAN for grounding."""

    def build(self) -> Model:
        """Return a new model with random weights."""
        return LearnedBoxesGrounder(self)
