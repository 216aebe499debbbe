"""X-Linear attention: bilinear products of query and key weigh the regions and the channels (X-LAN, section 3.2)."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from legenda.attention.geometry import Geometry
from legenda.attention.multi_head import AttentionOutput, allowed_pairs
from legenda.attention.pairs import score_pairs

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
        self.dropout = nn.Dropout(dropout)
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
    ) -> AttentionOutput:
        """Attends from T queries to S keys and values; the call is that of MultiHeadAttention.

        mask: True where a key is real, for all queries or for each; every query needs one such key. geometry: whatever
        the slots read. causal: query t sees keys 0..t only.
        """
        bias = None if self.score_bias is None else self.score_bias(query, key, geometry)
        if geometry is not None and geometry.window is not None:
            mask = geometry.window if mask is None else geometry.window & mask.unsqueeze(1)
        keys, values = self.keys_values(key, value)
        found = self._attend(self.queries(query), keys, values, mask, causal, bias, geometry)
        return found if need_weights else AttentionOutput(found.values, None)

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
    ) -> AttentionOutput:
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
    ) -> AttentionOutput:
        q, u = queries
        allowed = None if mask is None and not causal else allowed_pairs(q, keys, mask, causal)
        rate = self.dropout.p if self.dropout.training else 0.0
        scores, pooled = score_pairs(q, keys, self.pair, self.spatial, _share(keys, allowed), rate)  # Eqs. 2 to 4
        scores = scores.movedim(0, 2)
        if bias is not None:
            scores = scores + bias
        if self.rescale is not None:
            scores = self.rescale(scores, geometry)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, float("-inf"))
        weights = scores.softmax(dim=-1)
        gate = self.channel(pooled).sigmoid().movedim(0, 2)  # Eq. 5, (B, H, T, d)
        attended = u * (weights @ values) * gate  # Eq. 6; u is the same for all n
        return AttentionOutput(attended.transpose(1, 2).flatten(2), weights)


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


def _share(keys: Float[Tensor, "B H S d"], allowed: Bool[Tensor, "*#BHT S"] | None) -> Float[Tensor, "#T #B #H #S"]:
    """The share of each key in the mean over all that a query may see."""
    if allowed is None:
        return keys.new_full((1, 1, 1, 1), 1 / keys.shape[2])
    share = allowed.to(keys.dtype) / allowed.sum(dim=-1, keepdim=True)
    return share.view((1,) * (4 - share.dim()) + share.shape).movedim(2, 0)
