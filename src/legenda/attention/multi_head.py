"""Multi-head attention with slots: norms of queries or keys, a bias and a rescale of the scores, heads that talk."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention.geometry import Geometry


class AttentionOutput(NamedTuple):
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

    Where the geometry has a window, no query looks outside it.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        dropout: float = 0.0,
        inner_dim: int | None = None,
        query_dim: int | None = None,
        output: bool = True,
        bias: bool = True,
        talking: bool = False,
        drop_head: float = 0.0,
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
        score_bias: nn.Module | None = None,
        rescale: nn.Module | None = None,
    ) -> None:
        """inner_dim: channels of queries, keys and values over all heads, `dim` unless told; query_dim: those of the
        queries and keys where they differ from the values' (Bhojanapalli et al., 2020).

        output: whether the heads are projected back to `dim`; without it they come out side by side, `inner_dim` wide.
        bias: whether the projections have one.
        talking: linear maps over the heads before and after the softmax (Shazeer et al., 2020, "Talking-heads").
        drop_head: in training each head is erased with this probability, for a whole batch at once, and the others are
        divided by 1 - drop_head.
        """
        super().__init__()
        inner_dim = dim if inner_dim is None else inner_dim
        query_dim = inner_dim if query_dim is None else query_dim
        for channels in (inner_dim, query_dim):
            if channels % num_heads:
                raise ValueError(f"dim {channels} cannot be shared out to {num_heads} heads")
        self.num_heads = num_heads
        self.dropout = dropout
        self.drop_head = drop_head
        self.query = nn.Linear(dim, query_dim, bias=bias)
        self.key = nn.Linear(dim, query_dim, bias=bias)
        self.value = nn.Linear(dim, inner_dim, bias=bias)
        self.output = nn.Linear(inner_dim, dim, bias=bias) if output else nn.Identity()
        self.mix_scores = nn.Linear(num_heads, num_heads, bias=False) if talking else None
        self.mix_weights = nn.Linear(num_heads, num_heads, bias=False) if talking else None
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
        pairs: Bool[Tensor, "B T S"] | None = None,
        causal: bool = False,
        need_weights: bool = False,
    ) -> AttentionOutput:
        """Attends from T queries to S keys and values.

        mask: True where a key is real; with a query norm, keys and queries are the same regions and share it.
        pairs: True where query t may see key s, if the key is real.
        geometry: whatever the bias and rescale slots read. causal: query t sees keys 0..t only.
        """
        q = self.query(query)
        if self.query_norm is not None:
            q = self.query_norm(q, mask)
        keys, values = self.keys_values(key, value, mask)
        bias = None if self.score_bias is None else self.score_bias(query, key, geometry)
        seen = _all_of(mask, pairs, None if geometry is None else geometry.window)
        plain = self.rescale is None and self.mix_scores is None
        # on CPUs the kernel gives no gradient to a bias
        known = bias is None or bias.device.type != "cpu" or not bias.requires_grad
        if plain and known and not need_weights:
            return self._fused(self._split(q), keys, values, seen, causal, bias)
        return self._weighed(self._split(q), keys, values, seen, causal, bias, geometry)

    def keys_values(
        self, key: Float[Tensor, "B S D"], value: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"] | None = None
    ) -> tuple[Float[Tensor, "B H S d"], Float[Tensor, "B H S e"]]:
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
        values: Float[Tensor, "B H S e"],
        mask: Bool[Tensor, "B S"] | None = None,
        *,
        need_weights: bool = False,
    ) -> AttentionOutput:
        """Attends with queries, keys and values that are projected already, in a module whose slots are empty."""
        if need_weights:
            return self._weighed(queries, keys, values, mask, False, None, None)
        return self._fused(queries, keys, values, mask, False, None)

    def _fused(
        self,
        queries: Float[Tensor, "B H T d"],
        keys: Float[Tensor, "B H S d"],
        values: Float[Tensor, "B H S e"],
        mask: Bool[Tensor, "B S"] | Bool[Tensor, "B T S"] | None,
        causal: bool,
        bias: Float[Tensor, "B H T S"] | None,
    ) -> AttentionOutput:
        """Torch's fused kernel, for scores that are only masked or biased and whose weights nobody asks for."""
        added = None if mask is None and bias is None else _added_scores(queries, keys, mask, causal, bias)
        attended = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=added,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=causal and added is None,  # the kernel takes either, not both
        )
        return AttentionOutput(self._merge(attended), None)

    def _weighed(
        self,
        queries: Float[Tensor, "B H T d"],
        keys: Float[Tensor, "B H S d"],
        values: Float[Tensor, "B H S e"],
        mask: Bool[Tensor, "B S"] | Bool[Tensor, "B T S"] | None,
        causal: bool,
        bias: Float[Tensor, "B H T S"] | None,
        geometry: Geometry | None,
    ) -> AttentionOutput:
        scores = queries @ keys.transpose(-2, -1)
        if bias is not None:
            scores = scores + bias
        scores = scores * keys.shape[-1] ** -0.5
        if self.rescale is not None:
            scores = self.rescale(scores, geometry)
        if self.mix_scores is not None:
            scores = _across_heads(self.mix_scores, scores)
        if mask is not None or causal:
            scores = scores.masked_fill(~allowed_pairs(queries, keys, mask, causal), float("-inf"))
        weights = scores.softmax(dim=-1)
        if self.mix_weights is not None:
            weights = _across_heads(self.mix_weights, weights)
        dropped = F.dropout(weights, self.dropout, self.training)
        return AttentionOutput(self._merge(dropped @ values), weights)

    def _merge(self, heads: Float[Tensor, "B H T e"]) -> Float[Tensor, "B T D"]:
        if self.training and self.drop_head:
            kept = torch.rand(self.num_heads) >= self.drop_head
            heads = heads * (kept / (1 - self.drop_head)).to(heads)[:, None, None]
        return self.output(heads.transpose(1, 2).flatten(2))

    def _split(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T d"]:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def _across_heads(mix: nn.Linear, x: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T S"]:
    return mix(x.movedim(1, -1)).movedim(-1, 1)


def _all_of(
    mask: Bool[Tensor, "B S"] | None, pairs: Bool[Tensor, "B T S"] | None, window: Bool[Tensor, "B T S"] | None
) -> Bool[Tensor, "B S"] | Bool[Tensor, "B T S"] | None:
    """Where all that are there say True; of the shape of `mask` where it is alone."""
    if pairs is not None and window is not None:
        pairs = pairs & window
    pairs = window if pairs is None else pairs
    if mask is None or pairs is None:
        return mask if pairs is None else pairs
    return pairs & mask.unsqueeze(1)


def _added_scores(
    queries: Float[Tensor, "B H T d"],
    keys: Float[Tensor, "B H S d"],
    mask: Bool[Tensor, "B S"] | Bool[Tensor, "B T S"] | None,
    causal: bool,
    bias: Float[Tensor, "B H T S"] | None,
) -> Tensor | None:
    """What torch's kernel is to add to the divided scores, or where they count."""
    allowed = allowed_pairs(queries, keys, mask, causal) if mask is not None or causal else None
    if bias is None:
        return allowed
    scaled = (bias * keys.shape[-1] ** -0.5).to(queries.dtype)
    return scaled if allowed is None else scaled.masked_fill(~allowed, float("-inf"))


def allowed_pairs(
    queries: Float[Tensor, "B H T d"],
    keys: Float[Tensor, "B H S d"],
    mask: Bool[Tensor, "B S"] | Bool[Tensor, "B T S"] | None,
    causal: bool,
) -> Bool[Tensor, ...]:
    """Where queries may look under a mask, causally, or both, in a shape that broadcasts to `(B, H, T, S)`."""
    real = None if mask is None else mask[:, None, None, :] if mask.dim() == 2 else mask[:, None]
    if real is not None and not causal:
        return real  # broadcasts by itself: no tensor of all queries and keys is made
    past = torch.ones(queries.shape[2], keys.shape[2], dtype=torch.bool, device=queries.device).tril()
    return past if real is None else past & real
