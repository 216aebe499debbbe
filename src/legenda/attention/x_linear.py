"""X-Linear attention: spatial and channel-wise weights from bilinear products of query and key (X-LAN, 3.2)."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from legenda.attention.geometry import Geometry
from legenda.attention.multi_head import AttentionOutput, Dropout, Mask, broadcast_mask, within_window
from legenda.regions import check_mask

Act = Literal["celu", "relu", "none"]


def create_act(act: Act, alpha: float) -> nn.Module:
    """Return the named activation; "celu", the paper's ELU, is max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    return nn.CELU(alpha) if act == "celu" else nn.ReLU() if act == "relu" else nn.Identity()


class XLinearAttention(nn.Module):
    """beta_c * sum_n beta_n (v_n * u) in H heads, both weights computed from the products q * k_n (Eqs. 2 to 6).

    q and u are two embeddings of the query, k and v those of keys and values. W_B, W_b and W_e of Eqs. 3 and 5 are
    shared by the heads. With one head and without `norm` and `bias` the equations are those of the paper.

    score_bias, rescale: as in MultiHeadAttention, for the scores b of Eq. 3. Where the geometry has a window, no query
    attends outside it.
    """

    chunk_size: int = 2**24
    """Products q * k that are computed at once; with gradients, those of several chunks are computed again for them."""

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
        """Create the four embeddings and the maps of Eqs. 3 and 5.

        mid_dim: channels of B' in each head, half of the head's by default. act, alpha: activation of the embeddings.
        norm: whether each head of an embedding is normalized. bias: whether the linear maps have one. dropout: of B'.
        """
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"dim {dim} is not divisible by num_heads={num_heads}")
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
        attention_mask: Mask = None,
        geometry: Geometry | None = None,
        *,
        is_causal: bool = False,
        need_weights: bool = False,
    ) -> AttentionOutput:
        """Attend from T queries to S keys and values; arguments as in MultiHeadAttention."""
        check_mask(attention_mask)
        bias = None if self.score_bias is None else self.score_bias(query, key, geometry)
        mask = within_window(attention_mask, geometry)
        keys, values = self.keys_values(key, value)
        output = self.attend(self.queries(query), keys, values, mask, bias, geometry, is_causal=is_causal)
        return output if need_weights else AttentionOutput(output.values, None)

    def keys_values(
        self, key: Float[Tensor, "B S D"], value: Float[Tensor, "B S D"]
    ) -> tuple[Float[Tensor, "B H S d"], Float[Tensor, "B H S d"]]:
        """Return the embedded keys and values, k and v, as a decoder caches them."""
        return self.key(key), self.value(value)

    def queries(self, query: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B H T d"], Float[Tensor, "B H T d"]]:
        """Return the embedded queries: q, multiplied by the keys, and u, multiplied by the values."""
        return self.query_key(query), self.query_value(query)

    def attend(
        self,
        queries: tuple[Float[Tensor, "B H T d"], Float[Tensor, "B H T d"]],
        keys: Float[Tensor, "B H S d"],
        values: Float[Tensor, "B H S d"],
        attention_mask: Mask = None,
        bias: Float[Tensor, "B H T S"] | None = None,
        geometry: Geometry | None = None,
        *,
        is_causal: bool = False,
    ) -> AttentionOutput:
        """Attend with embedded queries, keys and values; bias: added to the scores. Return weights too."""
        check_mask(attention_mask)
        q, u = queries
        allowed = broadcast_mask(q, keys, attention_mask, is_causal)
        scores, pooled = self._score_pairs(q, keys, _mean_weights(keys, allowed))  # Eqs. 2 to 4
        if bias is not None:
            scores = scores + bias
        if self.rescale is not None:
            scores = self.rescale(scores, geometry)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, float("-inf"))
        weights = scores.softmax(dim=-1)
        gate = self.channel(pooled).sigmoid()  # Eq. 5, (B, H, T, d)
        attended = u * (weights.to(values.dtype) @ values) * gate  # Eq. 6; u is the same for all n
        return AttentionOutput(attended.transpose(1, 2).flatten(2), weights)

    def attend_pairs(
        self,
        query: Float[Tensor, "P D"],
        x: Float[Tensor, "P D"],
        i: Int[Tensor, " M"],
        j: Int[Tensor, " M"],
    ) -> Float[Tensor, "P D"]:
        """Attend from query i to key and value j of x, for M pairs sorted by i of which each query has one at least.

        Where few of all pairs are attended to, as in rows of different lengths, causally, no others are computed.
        """
        query, x = query.unsqueeze(1), x.unsqueeze(1)
        q, u, keys, values = (heads.squeeze(2) for heads in (*self.queries(query), *self.keys_values(x, x)))
        size = max(1, self.chunk_size // q[:1].numel())
        score = self._score_list if len(i) <= size else partial(checkpoint, self._score_list, use_reentrant=False)
        chunks = [score(q, keys, *chunk) for chunk in zip(i.split(size), j.split(size), strict=True)]
        scores, sums = zip(*chunks, strict=True)
        counts = i.bincount(minlength=len(q))
        rank = torch.arange(len(i), device=i.device) - (counts.cumsum(0) - counts)[i]  # of the key among the query's
        table = q.new_full((len(q), int(counts.max()), q.shape[1]), float("-inf"), dtype=scores[0].dtype)
        weights = table.index_put((i, rank), torch.cat(scores)).softmax(dim=1)[i, rank]
        parts = weights.unsqueeze(-1) * values.index_select(0, j)
        attended = parts.new_zeros(q.shape).index_add(0, i, parts)
        gate = self.channel(sum(sums) / counts[:, None, None]).sigmoid()
        return (u * attended * gate).flatten(1)

    def _score_list(self, q: Tensor, keys: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores `(M, H)` and, for each query, the sum of B' over its keys `(P, H, c)`."""
        pairs = self.dropout(self.pair(q.index_select(0, i) * keys.index_select(0, j)).relu())
        return self.spatial(pairs).squeeze(-1), pairs.new_zeros(len(q), *pairs.shape[1:]).index_add(0, i, pairs)

    def _score_pairs(
        self, q: Float[Tensor, "B H T d"], keys: Float[Tensor, "B H S d"], mean_weights: Float[Tensor, "#B #H #T #S"]
    ) -> tuple[Float[Tensor, "B H T S"], Float[Tensor, "B H T c"]]:
        """Return the scores b (Eq. 3) and the means of B' over the keys (Eq. 4), in chunks of queries.

        All products q * k at once take B x T x S x dim numbers; with gradients, autograd would keep them.
        """
        T = q.shape[2]
        size = max(1, self.chunk_size // max(1, q[:, :, 0].numel() * keys.shape[2]))
        if torch.compiler.is_compiling() or size >= T:
            return self._score_chunk(q, keys, mean_weights)
        chunks = []
        for start in range(0, T, size):
            t = slice(start, start + size)
            inputs = q[:, :, t], keys, mean_weights if mean_weights.shape[2] == 1 else mean_weights[:, :, t]
            saves = torch.is_grad_enabled()
            chunks.append(
                checkpoint(self._score_chunk, *inputs, use_reentrant=False) if saves else self._score_chunk(*inputs)
            )
        scores, means = zip(*chunks, strict=True)
        return torch.cat(scores, dim=2), torch.cat(means, dim=2)

    def _score_chunk(self, q: Tensor, keys: Tensor, mean_weights: Tensor) -> tuple[Tensor, Tensor]:
        # W_B (q * k) = (W_B * k) q, with fewer numbers for many queries; an exported graph serves any number of them
        if not torch.compiler.is_exporting() and q.shape[2] > self.pair.out_features:
            maps = (keys.unsqueeze(3) * self.pair.weight).flatten(2, 3)  # (B, H, S c, d)
            products = (q @ maps.transpose(2, 3)).unflatten(3, (keys.shape[2], -1))
            pairs = products if self.pair.bias is None else products + self.pair.bias
        else:
            pairs = self.pair(q.unsqueeze(3) * keys.unsqueeze(2))
        pairs = self.dropout(pairs.relu())  # Eq. 2: (B, H, T, S, c)
        weights = mean_weights.expand(*mean_weights.shape[:-1], keys.shape[2])
        return self.spatial(pairs).squeeze(-1), (weights.unsqueeze(-2) @ pairs).squeeze(-2)


class HeadEmbedding(nn.Module):
    """Linear layer, activation and, with `norm`, normalization of each head."""

    def __init__(self, dim: int, num_heads: int, act: nn.Module, *, norm: bool, bias: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.linear = nn.Linear(dim, dim, bias=bias)
        self.act = act
        self.norm = nn.GroupNorm(num_heads, dim) if norm else nn.Identity()

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T d"]:
        """Return the embedding of each vector, split into heads."""
        x = self.norm(self.act(self.linear(x)).flatten(0, 1)).view(x.shape)
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2).contiguous()


def _mean_weights(
    keys: Float[Tensor, "B H S d"], allowed: Bool[Tensor, "*#BHT S"] | None
) -> Float[Tensor, "#B #H #T #S"]:
    """Return the weight of each key in the mean over all keys that a query may attend to."""
    if allowed is None:
        return keys.new_full((1, 1, 1, 1), 1 / keys.shape[2])
    weights = allowed.to(keys.dtype) / allowed.sum(dim=-1, keepdim=True)
    return weights.view((1,) * (4 - weights.dim()) + weights.shape)
