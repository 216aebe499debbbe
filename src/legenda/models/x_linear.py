"""The options and the encoder that X-LAN and X-Transformer share (X-LAN, section 3.3.2)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention.dropout import Dropout
from legenda.attention.x_linear import XLinearAttention
from legenda.models.encoder import Encoder
from legenda.models.freeze import SplitLinear
from legenda.models.layers import PostNormFeedForward
from legenda.regions import Memory, Regions, masked_mean


class ConcatUpdate(SplitLinear):
    """LayerNorm(ReLU(W [attended, x]) + x): update of keys, values or tokens after a block (Eq. 8)."""

    def __init__(self, dim: int, *, bias: bool, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * dim, dim, bias=bias)
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(dim)

    def parts(self) -> list[tuple[Tensor, Tensor | None]]:
        """Return the weights of the attended vector (with the bias) and of x."""
        w_attended, w_x = self.linear.weight.chunk(2, dim=1)
        return [(w_attended, self.linear.bias), (w_x, None)]

    def forward(self, attended: Float[Tensor, "*#rows D"], x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Return the updated x; one attended vector may serve all x of an image, and is then multiplied once."""
        map_attended, map_x = self.linear_maps()
        return self.norm(x + self.dropout(F.relu(map_attended(attended) + map_x(x))))


class XLinearLayer(nn.Module):
    """An X-Linear block queried by the image's vector (Eq. 7), and the update of keys and values (Eq. 8)."""

    def __init__(
        self,
        attention: XLinearAttention,
        update_values: ConcatUpdate,
        update_keys: ConcatUpdate | None,
        *,
        dropout: float,
    ) -> None:
        """Create the layer; update_keys: None where the values are also the keys, as released."""
        super().__init__()
        self.attention = attention
        self.dropout = Dropout(dropout)
        self.update_values = update_values
        self.update_keys = update_keys

    def forward(
        self,
        attended: Float[Tensor, "B D"],
        keys: Float[Tensor, "B N D"],
        values: Float[Tensor, "B N D"],
        attention_mask: Bool[Tensor, "B N"],
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B N D"], Float[Tensor, "B N D"]]:
        """Return the next query, keys and values."""
        output = self.dropout(self.attention(attended.unsqueeze(1), keys, values, attention_mask).values)
        values = self.update_values(output, values)
        keys = values if self.update_keys is None else self.update_keys(output, keys)
        return output.squeeze(1), keys, values


class XLinearEncoder(Encoder):
    """Region embedding, L layers queried by the mean region, and a global feature of all their outputs (Eq. 10)."""

    def __init__(
        self,
        *,
        feature_dim: int,
        dim: int,
        num_layers: int,
        create_block: Callable[[], XLinearAttention],
        create_update: Callable[[], ConcatUpdate],
        act: nn.Module,
        input_norm: bool,
        as_released: bool,
        input_dropout: float,
        block_dropout: float,
        ff_dim: int | None = None,
        ff_dropout: float = 0.0,
    ) -> None:
        """Create the layers.

        act, input_norm, input_dropout: activation, normalization and dropout of the region embedding. as_released:
        one update for keys and values, and biases and a normalization in Eq. 10. ff_dim: inner channels of a
        feed-forward network after each layer, as in X-Transformer; None for none.
        """
        super().__init__()
        self.input = nn.Linear(feature_dim, dim)
        self.act = act
        self.norm = nn.LayerNorm(dim) if input_norm else nn.Identity()
        self.norm_first = ff_dim is not None
        self.dropout = Dropout(input_dropout)
        self.layers = nn.ModuleList(
            XLinearLayer(
                create_block(),
                create_update(),
                None if as_released or layer == num_layers - 1 else create_update(),
                dropout=block_dropout,
            )
            for layer in range(num_layers)
        )
        self.feed_forward = nn.ModuleList(
            PostNormFeedForward(dim, ff_dim, ff_dropout) for _ in range(num_layers) if ff_dim is not None
        )
        self.global_feature: nn.Linear | None = nn.Linear((num_layers + 1) * dim, dim, bias=as_released)
        self.global_norm: nn.Module | None = nn.LayerNorm(dim) if as_released else nn.Identity()

    def remove_global_branch(self) -> None:
        """Delete the layer of Eq. 10."""
        self.global_feature = self.global_norm = None

    def forward(self, regions: Regions) -> Memory:
        """Return the last values as states, and the global feature; states of padding are finite."""
        mask = regions.mask_or_ones
        # padding may hold NaN, which a mask of the scores does not remove
        x = self.act(self.input(regions.features.masked_fill(~mask.unsqueeze(-1), 0.0)))
        x = self.dropout(self.norm(x)) if self.norm_first else self.norm(self.dropout(x))
        attended = masked_mean(x, mask)
        keys, outputs = x, [attended]
        for index, layer in enumerate(self.layers):
            attended, keys, x = layer(attended, keys, x, mask)
            if self.feed_forward:
                keys = x = self.feed_forward[index](x)
            outputs.append(attended)
        if self.global_feature is None or self.global_norm is None:
            return Memory(x, mask, masked_mean(x, mask))
        return Memory(x, mask, self.global_norm(self.global_feature(torch.cat(outputs, dim=-1))))
