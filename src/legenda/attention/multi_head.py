"""Multi-head attention with three slots: a norm for queries or keys, a bias for the scores, a rescale of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention.geometry import Geometry


class Attended(NamedTuple):
    """What attention gives: the attended values `(B, T, D)` and, when asked for, its weights `(B, H, T, S)`."""

    values: Tensor
    weights: Tensor | None


class MultiHeadAttention(nn.Module):
    """Softmax((Q K^T + bias) / sqrt(d_k)) V over H heads, with projections of its own.

    The slots, each None or a module:
    query_norm, key_norm: called as `norm(x (B, T, D), mask (B, T))` on the projected queries or keys before they are
    split into heads (NSA: NG-SAN, Eq. 7);
    score_bias: `bias(query (B, T, D), key (B, S, D), geometry) -> (B, H, T, S)`, added to Q K^T before the division by
    sqrt(d_k) (GSA: NG-SAN, Eq. 10);
    rescale: `rescale(scores (B, H, T, S), geometry) -> (B, H, T, S)` of the divided scores, before the mask (DSA).
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        dropout: float = 0.0,
        inner_dim: int | None = None,
        output: bool = True,
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
        score_bias: nn.Module | None = None,
        rescale: nn.Module | None = None,
    ) -> None:
        """inner_dim: channels of queries, keys and values over all heads, `dim` unless told.

        output: whether the heads are projected back to `dim`; without it they come out side by side, `inner_dim` wide.
        """
        super().__init__()
        inner_dim = dim if inner_dim is None else inner_dim
        if inner_dim % num_heads:
            raise ValueError(f"dim {inner_dim} cannot be shared out to {num_heads} heads")
        self.num_heads = num_heads
        self.dropout = dropout
        self.query = nn.Linear(dim, inner_dim)
        self.key = nn.Linear(dim, inner_dim)
        self.value = nn.Linear(dim, inner_dim)
        self.output = nn.Linear(inner_dim, dim) if output else nn.Identity()
        self.query_norm = query_norm
        self.key_norm = key_norm
        self.score_bias = score_bias
        self.rescale = rescale

    def forward(
        self,
        query: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S D"],
        value: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B S"] | None = None,
        geometry: Geometry | None = None,
        *,
        causal: bool = False,
        need_weights: bool = False,
    ) -> Attended:
        """Attends from T queries to S keys and values.

        mask: True where a key is real; with a query norm, keys and queries are the same regions and share it.
        geometry: whatever the bias and rescale slots read. causal: query t sees keys 0..t only.
        """
        q = self.query(query)
        if self.query_norm is not None:
            q = self.query_norm(q, mask)
        keys, values = self.keys_values(key, value, mask)
        bias = None if self.score_bias is None else self.score_bias(query, key, geometry)
        if bias is None and self.rescale is None and not need_weights:
            return self._fused(self._split(q), keys, values, mask, causal)
        return self._weighed(self._split(q), keys, values, mask, causal, bias, geometry)

    def keys_values(
        self, key: Float[Tensor, "B S D"], value: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"] | None = None
    ) -> tuple[Float[Tensor, "B H S d"], Float[Tensor, "B H S d"]]:
        """Projected keys and values, split into heads: what a decoder keeps instead of projecting it again."""
        k = self.key(key)
        if self.key_norm is not None:
            k = self.key_norm(k, mask)
        return self._split(k), self._split(self.value(value))

    def queries(self, query: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T d"]:
        """Projected queries, split into heads."""
        return self._split(self.query(query))

    def attend(
        self,
        queries: Float[Tensor, "B H T d"],
        keys: Float[Tensor, "B H S d"],
        values: Float[Tensor, "B H S d"],
        mask: Bool[Tensor, "B S"] | None = None,
        *,
        need_weights: bool = False,
    ) -> Attended:
        """Attends with queries, keys and values that are projected already, in a module whose slots are empty."""
        if need_weights:
            return self._weighed(queries, keys, values, mask, False, None, None)
        return self._fused(queries, keys, values, mask, False)

    def _fused(
        self,
        queries: Float[Tensor, "B H T d"],
        keys: Float[Tensor, "B H S d"],
        values: Float[Tensor, "B H S d"],
        mask: Bool[Tensor, "B S"] | None,
        causal: bool,
    ) -> Attended:
        """Torch's fused kernel, for plain scores whose weights nobody asks for."""
        attended = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=None if mask is None else _allowed(queries, keys, mask, causal),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=causal and mask is None,  # the kernel takes either, not both
        )
        return Attended(self.output(attended.transpose(1, 2).flatten(2)), None)

    def _weighed(
        self,
        queries: Float[Tensor, "B H T d"],
        keys: Float[Tensor, "B H S d"],
        values: Float[Tensor, "B H S d"],
        mask: Bool[Tensor, "B S"] | None,
        causal: bool,
        bias: Float[Tensor, "B H T S"] | None,
        geometry: Geometry | None,
    ) -> Attended:
        scores = queries @ keys.transpose(-2, -1)
        if bias is not None:
            scores = scores + bias
        scores = scores * keys.shape[-1] ** -0.5
        if self.rescale is not None:
            scores = self.rescale(scores, geometry)
        if mask is not None or causal:
            scores = scores.masked_fill(~_allowed(queries, keys, mask, causal), float("-inf"))
        weights = scores.softmax(dim=-1)
        dropped = F.dropout(weights, self.dropout, self.training)
        return Attended(self.output((dropped @ values).transpose(1, 2).flatten(2)), weights)

    def _split(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T d"]:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def _allowed(
    queries: Float[Tensor, "B H T d"], keys: Float[Tensor, "B H S d"], mask: Bool[Tensor, "B S"] | None, causal: bool
) -> Bool[Tensor, ...]:
    """Where queries may look under a mask, causally, or both, in a shape that broadcasts to `(B, H, T, S)`."""
    real = None if mask is None else mask[:, None, None, :]
    if real is not None and not causal:
        return real  # broadcasts by itself: no tensor of all queries and keys is made
    past = torch.ones(queries.shape[2], keys.shape[2], dtype=torch.bool, device=queries.device).tril()
    return past if real is None else past & real
