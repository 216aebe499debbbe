"""The Transformer's encoder: self-attention among the regions of an image (NG-SAN, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention import Geometry, PairGeometry, sinusoids
from legenda.attention.dropout import Dropout
from legenda.attention.registries import BOX_EMBEDDINGS
from legenda.models.encoder import Encoder
from legenda.models.layers import FeedForward, Residual, init_xavier_uniform_
from legenda.plugins import resolve
from legenda.regions import Memory, Regions, masked_mean


class EncoderLayer(nn.Module):
    """Self-attention, of any kind, and a feed-forward network."""

    def __init__(
        self,
        attention: nn.Module,
        dim: int,
        *,
        ff_dim: int,
        dropout: float,
        inner_dropout: float,
        norm_first: bool,
    ) -> None:
        """Create the layer; dropout: of each sublayer's output, inner_dropout: inside the feed-forward network."""
        super().__init__()
        self.attention = attention
        self.feed_forward = FeedForward(dim, ff_dim, inner_dropout)
        self.attention_residual = Residual(dim, dropout, norm_first)
        self.feed_forward_residual = Residual(dim, dropout, norm_first)

    def forward(
        self, x: Float[Tensor, "B N D"], attention_mask: Bool[Tensor, "B N"], geometry: Geometry
    ) -> Float[Tensor, "B N D"]:
        """Return the regions after this layer."""
        normed = self.attention_residual.pre(x)
        attended = self.attention(normed, normed, normed, attention_mask, geometry).values
        x = self.attention_residual.post(x, attended)
        return self.feed_forward_residual.post(x, self.feed_forward(self.feed_forward_residual.pre(x)))


class TransformerEncoder(Encoder):
    """Linear, ReLU and L layers of self-attention over the regions (NG-SAN, section 3.2)."""

    def __init__(
        self,
        *,
        feature_dim: int,
        dim: int,
        num_layers: int,
        ff_dim: int,
        create_attention: Callable[[int], nn.Module],
        create_geometry: Callable[[], PairGeometry],
        needs_boxes: bool = False,
        box_embedding: str | None = None,
        ordered: bool = False,
        dropout: float = 0.1,
        norm_first: bool = False,
        last_norm: bool = True,
    ) -> None:
        """Create the layers.

        create_attention: returns the self-attention of a layer, counted from 0. create_geometry: returns the module
        that computes the geometry of all layers. box_embedding: a name of BOX_EMBEDDINGS, added to the
        regions. ordered: add sinusoids of their positions.
        last_norm: whether a normalization follows the last layer.
        """
        super().__init__()
        self.needs_boxes = needs_boxes
        self.box_embedding = None if box_embedding is None else resolve(BOX_EMBEDDINGS[box_embedding])
        self.ordered = ordered
        self.input = nn.Linear(feature_dim, dim)
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(
                create_attention(layer),
                dim,
                ff_dim=ff_dim,
                dropout=dropout,
                inner_dropout=dropout,
                norm_first=norm_first,
            )
            for layer in range(num_layers)
        )
        self.norm = nn.LayerNorm(dim) if last_norm else nn.Identity()
        self.geometry = create_geometry()

    def reset_parameters(self) -> None:
        """Initialize all matrices from Xavier's uniform distribution."""
        init_xavier_uniform_(self)

    def forward(self, regions: Regions) -> Memory:
        """Return encoded regions; states of padding are finite."""
        mask = regions.mask_or_ones
        padding = ~mask.unsqueeze(-1)  # may hold NaN, which a mask of the scores does not remove
        x = F.relu(self.input(regions.features.masked_fill(padding, 0.0)))
        boxes = None if regions.boxes is None else regions.boxes.masked_fill(padding, 0.0)
        levels = [self._embed(x, boxes)]
        for layer, geometry in zip(self.layers, self.geometry(regions), strict=True):
            levels.append(layer(levels[-1], mask, geometry))
        return self._prepare_memory(levels[1:], mask)

    def _prepare_memory(self, levels: list[Tensor], mask: Bool[Tensor, "B N"]) -> Memory:
        """Return the memory of the layers' outputs, the first layer's first."""
        states = self.norm(levels[-1])
        return Memory(states, mask, masked_mean(states, mask))

    def _embed(self, x: Float[Tensor, "B N D"], boxes: Float[Tensor, "B N 4"] | None) -> Float[Tensor, "B N D"]:
        """Return the first layer's input for the output of the input layer."""
        return self.dropout(self._add_positions(x, boxes))

    def _add_positions(self, x: Float[Tensor, "B N D"], boxes: Float[Tensor, "B N 4"] | None) -> Float[Tensor, "B N D"]:
        """Return the regions plus the sinusoids of their order or the embedding of their boxes, where requested."""
        if self.ordered:
            x = x + sinusoids(torch.arange(x.shape[1], device=x.device, dtype=x.dtype), x.shape[-1])
        if self.box_embedding is None:
            return x
        assert boxes is not None
        return x + self.box_embedding(boxes, x.shape[-1])
