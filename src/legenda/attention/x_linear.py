"""X-Linear attention: bilinear products of query and key weigh the regions and the channels (X-LAN, section 3.2)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from legenda.attention.dropout import Dropout
from legenda.attention.geometry import Geometry
from legenda.attention.multi_head import Attended, allowed_pairs

Act = Literal["celu", "relu", "none"]


def create_act(act: Act, alpha: float) -> nn.Module:
    """The named activation; "celu", the paper's ELU, is max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    return nn.CELU(alpha) if act == "celu" else nn.ReLU() if act == "relu" else nn.Identity()


class XLinearAttention(nn.Module):
    """beta_c * sum_n beta_n (v_n * u), in H heads: both weights come from the products q * k_n (Eqs. 2 to 6).

    q and u are two embeddings of the query, k and v of keys and values. W_B, W_b and W_e of Eqs. 3 and 5 are shared by
    the heads. With one head and without `norm` and `bias` the equations are those of the paper.

    score_bias, rescale: slots as those of MultiHeadAttention, for the scores b of Eq. 3. Where the geometry has a
    window, no query looks outside it.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        mid_dim: int | None = None,
        act: Act = "celu",
        alpha: float = 1.3,
        norm: bool = True,
        bias: bool = True,
        dropout: float = 0.0,
        score_bias: nn.Module | None = None,
        rescale: nn.Module | None = None,
    ) -> None:
        """mid_dim: channels of B' in each head, half of the head's unless told; act, alpha: of the four embeddings.

        norm: each head of an embedding is normalised; bias: all linear maps have one; dropout: of B'.
        """
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"dim {dim} cannot be shared out to {num_heads} heads")
        head_dim = dim // num_heads
        mid_dim = head_dim // 2 if mid_dim is None else mid_dim

        def embedding() -> HeadEmbedding:
            return HeadEmbedding(dim, num_heads, create_act(act, alpha), norm=norm, bias=bias)

        self.query_key, self.query_value = embedding(), embedding()
        self.key, self.value = embedding(), embedding()
        self.pair = nn.Linear(head_dim, mid_dim, bias=bias)
        self.spatial = nn.Linear(mid_dim, 1, bias=bias)
        self.channel = nn.Linear(mid_dim, head_dim, bias=bias)
        self.dropout = Dropout(dropout)
        self.score_bias = score_bias
        self.rescale = rescale

    def forward(
        self,
        query: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S D"],
        value: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B S"] | Bool[Tensor, "B T S"] | None = None,
        geometry: Geometry | None = None,
        *,
        causal: bool = False,
        need_weights: bool = False,
    ) -> Attended:
        """Attends from T queries to S keys and values; the call is that of MultiHeadAttention.

        mask: True where a key is real, for all queries or for each; every query needs one such key. geometry: whatever
        the slots read. causal: query t sees keys 0..t only.
        """
        bias = None if self.score_bias is None else self.score_bias(query, key, geometry)
        if geometry is not None and geometry.window is not None:
            mask = geometry.window if mask is None else geometry.window & mask.unsqueeze(1)
        keys, values = self.keys_values(key, value)
        found = self._attend(self.queries(query), keys, values, mask, causal, bias, geometry)
        return found if need_weights else Attended(found.values, None)

    def keys_values(
        self, key: Float[Tensor, "B S D"], value: Float[Tensor, "B S D"]
    ) -> tuple[Float[Tensor, "B H S d"], Float[Tensor, "B H S d"]]:
        """Embedded keys and values, k and v: what a decoder keeps instead of embedding them again."""
        return self.key(key), self.value(value)

    def queries(self, query: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B H T d"], Float[Tensor, "B H T d"]]:
        """Embedded queries: q, which meets the keys, and u, which meets the values."""
        return self.query_key(query), self.query_value(query)

    def attend(
        self,
        queries: tuple[Float[Tensor, "B H T d"], Float[Tensor, "B H T d"]],
        keys: Float[Tensor, "B H S d"],
        values: Float[Tensor, "B H S d"],
        mask: Bool[Tensor, "B S"] | None = None,
    ) -> Attended:
        """Attends with what is embedded already, in a module whose slots are empty; the weights come with it."""
        return self._attend(queries, keys, values, mask, False, None, None)

    def _attend(
        self,
        queries: tuple[Float[Tensor, "B H T d"], Float[Tensor, "B H T d"]],
        keys: Float[Tensor, "B H S d"],
        values: Float[Tensor, "B H S d"],
        mask: Bool[Tensor, "B S"] | Bool[Tensor, "B T S"] | None,
        causal: bool,
        bias: Float[Tensor, "B H T S"] | None,
        geometry: Geometry | None,
    ) -> Attended:
        q, u = queries
        pairs = self.dropout(_embed_pairs(q, keys, self.pair).relu_())  # (T, B, H, S, c), Eqs. 2 and 3
        scores = self.spatial(pairs).squeeze(-1).movedim(0, 2)
        if bias is not None:
            scores = scores + bias
        if self.rescale is not None:
            scores = self.rescale(scores, geometry)
        if mask is None and not causal:
            pooled = pairs.mean(dim=-2)
        else:
            allowed = allowed_pairs(q, keys, mask, causal)
            scores = scores.masked_fill(~allowed, float("-inf"))
            pooled = _mean_of(pairs, allowed)
        weights = scores.softmax(dim=-1)
        gate = self.channel(pooled).sigmoid().movedim(0, 2)  # Eqs. 4 and 5, (B, H, T, d)
        attended = u * (weights @ values) * gate  # Eq. 6; u is the same for all n
        return Attended(attended.transpose(1, 2).flatten(2), weights)


class HeadEmbedding(nn.Module):
    """Linear, activation and, with `norm`, normalisation of each head by itself."""

    def __init__(self, dim: int, num_heads: int, act: nn.Module, *, norm: bool, bias: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.linear = nn.Linear(dim, dim, bias=bias)
        self.act = act
        self.norm = nn.GroupNorm(num_heads, dim) if norm else nn.Identity()

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T d"]:
        """The embedding of each vector, split into heads."""
        x = self.norm(self.act(self.linear(x)).flatten(0, 1)).view(x.shape)
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2).contiguous()


def _mean_of(pairs: Float[Tensor, "T B H S c"], allowed: Bool[Tensor, "*#BHT S"]) -> Float[Tensor, "T B H c"]:
    """The mean over the keys that each query may see, as a product, so that nothing as large as `pairs` is made."""
    share = allowed.to(pairs.dtype) / allowed.sum(dim=-1, keepdim=True)
    share = share.view((1,) * (4 - share.dim()) + share.shape).movedim(2, 0)  # (T, B, 1, S) or ones
    return (share.unsqueeze(-2) @ pairs).squeeze(-2)


def _embed_pairs(
    queries: Float[Tensor, "B H T d"], keys: Float[Tensor, "B H S d"], linear: nn.Linear
) -> Float[Tensor, "T B H S c"]:
    """`linear` of the product of each query with each key."""
    device = queries.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else linear.weight.dtype
    bias = None if linear.bias is None else linear.bias.to(dtype)
    return _EmbeddedPairs.apply(queries.to(dtype), keys.to(dtype), linear.weight.to(dtype), bias)


class _EmbeddedPairs(torch.autograd.Function):
    """W (q * k) + b, one query of every image at a time.

    All products q * k at once are images x queries x keys x dim numbers, which would be written, kept for the way back
    and read again. Of one query per image they are images x keys x dim, stay in the processor's cache, and are made
    anew on the way back: two to three times faster, and the memory is free for the batch.
    """

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(queries, keys, weight)
        ctx.has_bias = bias is not None
        B, H, T, d = queries.shape
        start = weight.new_zeros(len(weight)) if bias is None else bias
        embedded = queries.new_empty(T, B, H, keys.shape[2], len(weight))
        for query, out in zip(queries.unbind(2), embedded, strict=True):
            products = (query.unsqueeze(2) * keys).reshape(-1, d)
            torch.addmm(start, products, weight.T, out=out.view(-1, len(weight)))
        return embedded

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        (grad,) = grad_outputs
        queries, keys, weight = ctx.saved_tensors
        sums = torch.promote_types(weight.dtype, torch.float32)  # many terms add up, which half precision would lose
        to_queries = torch.empty_like(queries)
        to_keys = torch.zeros_like(keys, dtype=sums)
        to_weight = torch.zeros_like(weight, dtype=sums)
        for t, query in enumerate(queries.unbind(2)):
            query = query.unsqueeze(2)
            rows = grad[t].reshape(-1, len(weight))
            to_weight += rows.T @ (query * keys).reshape(-1, weight.shape[1])
            to_products = (rows @ weight).view(keys.shape)
            to_queries[:, :, t] = (to_products * keys).sum(dim=2)
            to_keys.addcmul_(to_products.to(sums), query.to(sums))
        to_bias = grad.flatten(0, 3).sum(dim=0) if ctx.has_bias else None
        return to_queries, to_keys.to(keys.dtype), to_weight.to(weight.dtype), to_bias
