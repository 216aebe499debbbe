"""AoANet's encoder: regions refined by attention on attention (Huang et al., ICCV 2019, section 3.2.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention import (
    AttentionOnAttention,
    Geometry,
    MaskedBatchNorm,
    MultiHeadAttention,
    PairGeometry,
    StdLayerNorm,
)
from legenda.attention.dropout import Dropout
from legenda.models.encoder import Encoder
from legenda.models.layers import FeedForward
from legenda.models.lstm import run_packed_lstm
from legenda.regions import Memory, Regions, masked_mean


class RefinerLayer(nn.Module):
    """Self-attention among regions, gated by each region's query (Figure 4) or not (Figure 6a)."""

    def __init__(
        self,
        attention: nn.Module,
        dim: int,
        *,
        norm: nn.Module,
        attended_dim: int,
        as_printed: bool,
        aoa_dropout: float | None,
        dropout: float,
        ff_dim: int | None,
        ff_norm: nn.Module | None,
    ) -> None:
        """Create the layer; aoa_dropout and ff_dim: None for no attention on attention or feed-forward network.

        attended_dim: channels of the attention's values. as_printed: norm(x + f(x)) instead of x + f(norm(x)), and the
        projected query in attention on attention.
        """
        super().__init__()
        self.as_printed = as_printed
        self.norm = norm
        self.attention = attention
        query_dim = attended_dim if as_printed else dim
        self.aoa = (
            None if aoa_dropout is None else AttentionOnAttention(attended_dim, query_dim, dim, dropout=aoa_dropout)
        )
        self.dropout = Dropout(dropout)
        self.feed_forward = None if ff_dim is None else FeedForward(dim, ff_dim, dropout)
        self.feed_forward_norm = ff_norm

    def forward(
        self, x: Float[Tensor, "B N D"], attention_mask: Bool[Tensor, "B N"], geometry: Geometry
    ) -> Float[Tensor, "B N D"]:
        """Return the regions after this layer."""
        x = self._residual(self.norm, x, lambda y: self._attend(y, attention_mask, geometry))
        if self.feed_forward is not None and self.feed_forward_norm is not None:
            x = self._residual(self.feed_forward_norm, x, self.feed_forward)
        return x

    def _residual(self, norm: nn.Module, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return x + f(norm(x)) as released, or norm(x + f(x)) as printed (Eq. 7)."""
        if self.as_printed:
            return norm(x + self.dropout(sublayer(x)))
        return x + self.dropout(sublayer(norm(x)))

    def _attend(self, y: Tensor, attention_mask: Tensor, geometry: Geometry) -> Tensor:
        attended = self.attention(y, y, y, attention_mask, geometry).values
        if self.aoa is None:
            return attended
        if self.as_printed and isinstance(self.attention, MultiHeadAttention):
            y = self.attention.query(y)
        return self.aoa(attended, y)


class AoANetEncoder(Encoder):
    """Embedded regions, L refining layers, and a global feature (section 3.2.1)."""

    def __init__(
        self,
        *,
        feature_dim: int,
        dim: int,
        num_layers: int,
        create_layer: Callable[[int], RefinerLayer],
        create_geometry: Callable[[], PairGeometry],
        needs_boxes: bool = False,
        as_printed: bool = False,
        use_bn: int = 0,
        recurrent: bool = False,
        mean_feats: bool = True,
        dropout: float = 0.5,
    ) -> None:
        """Create the modules; as_printed, use_bn, recurrent, mean_feats: as in AoANetConfig.

        create_layer: returns a refining layer, counted from 0. create_geometry: returns the module that computes the
        geometry of all layers.
        """
        super().__init__()
        self.needs_boxes = needs_boxes
        self.as_printed = as_printed
        self.input_norm = MaskedBatchNorm(feature_dim) if use_bn else None
        self.input = nn.Linear(feature_dim, dim)
        self.embedded_norm = MaskedBatchNorm(dim) if use_bn == 2 else None
        self.dropout = Dropout(dropout)
        self.frames = nn.LSTM(dim, dim // 2, batch_first=True, bidirectional=True) if recurrent else None
        self.layers = nn.ModuleList(create_layer(layer) for layer in range(num_layers))
        self.norm = StdLayerNorm(dim) if num_layers and not as_printed else None
        self.geometry = create_geometry()
        self.global_embedding = None if mean_feats else nn.Linear(feature_dim, dim)
        if not as_printed:
            self._copy_first_layer()

    def forward(self, regions: Regions) -> Memory:
        """Return refined regions and, as global feature, their mean or the embedding of the image's feature."""
        mask = regions.mask_or_ones
        padding = ~mask.unsqueeze(-1)
        features = regions.features.masked_fill(padding, 0.0)
        x = features if self.input_norm is None else self.input_norm(features, mask)
        x = self.input(x)
        x = self.dropout(x if self.as_printed else F.relu(x))
        if self.embedded_norm is not None:
            x = self.embedded_norm(x, mask)
        x = x.masked_fill(padding, 0.0)
        if self.frames is not None:
            x = run_packed_lstm(self.frames, x, mask)
        for layer, geometry in zip(self.layers, self.geometry(regions), strict=True):
            x = layer(x, mask, geometry)
        if self.norm is not None:
            x = self.norm(x)
        return Memory(x, mask, self._global_feature(regions, features, x))

    def remove_global_branch(self) -> None:
        """Delete the embedding of the image's feature."""
        self.global_embedding = None

    def _global_feature(self, regions: Regions, features: Tensor, x: Tensor) -> Tensor:
        if self.global_embedding is None:
            return masked_mean(x, regions.mask_or_ones)
        vector = regions.global_feature
        if vector is None:
            vector = masked_mean(features, regions.mask_or_ones)
        return self.dropout(F.relu(self.global_embedding(vector)))

    @torch.no_grad()
    def _copy_first_layer(self) -> None:
        """Copy initial weights as the release does: one layer for all, one matrix for queries, keys and values."""
        for layer in self.layers:
            for attention in filter(_is_square, layer.modules()):
                attention.key.load_state_dict(attention.query.state_dict())
                attention.value.load_state_dict(attention.query.state_dict())
        for layer in list(self.layers)[1:]:
            if layer.state_dict().keys() == self.layers[0].state_dict().keys():  # unless some have fewer branches
                layer.load_state_dict(self.layers[0].state_dict())


def _is_square(module: nn.Module) -> TypeGuard[MultiHeadAttention]:
    """Return whether queries, keys and values of an attention have equally many channels."""
    return isinstance(module, MultiHeadAttention) and module.query.weight.shape == module.value.weight.shape
