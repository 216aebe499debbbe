"""Multi-head attention with optional norms of queries and keys, score bias, score rescaling and talking heads.

Its dropout (Srivastava et al., 2014), which all models use, draws its masks fast on CPUs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention.geometry import Geometry, as_weights_of
from legenda.regions import check_mask

Mask = Bool[Tensor, "B S"] | Bool[Tensor, "B T S"] | None
"""True where a key may be attended to, by all queries or by each; None for everywhere."""

_MIN_NUMEL = 4096
"""Below this number of elements PyTorch's masks are as fast."""


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Return `torch.nn.functional.dropout(x, p, training)`, with a mask of 16-bit random numbers on CPUs.

    PyTorch draws a CPU mask from Mersenne Twister; NumPy's SFC64, seeded from PyTorch's generator at each call, takes
    a fourth of the time. p is rounded to 1/65536.
    """
    if not training or p == 0:
        return x
    if x.device.type != "cpu" or x.numel() < _MIN_NUMEL or p == 1 or torch.compiler.is_compiling():
        return F.dropout(x, p)
    generator = np.random.SFC64(int(torch.randint(2**63 - 1, ())))
    bits = generator.random_raw(-(-x.numel() // 4)).view(np.uint16)[: x.numel()]
    kept = bits >= min(round(p * 65536), 65535)
    mask = torch.from_numpy(kept.view(np.uint8)).view(x.shape)  # 8 bits of memory for the gradient
    return (x * mask).mul_(1 / (1 - p))


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` with the masks of `dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return `input`, in training with a share `p` of its elements set to 0 and the others divided by 1 - p."""
        return dropout(input, self.p, self.training)


class AttentionOutput(NamedTuple):
    """The output of attention: values `(B, T, D)` and, where requested, attention weights `(B, H, T, S)`."""

    values: Tensor
    weights: Tensor | None


class MultiHeadAttention(nn.Module):
    """Softmax((Q K^T + bias) / sqrt(d_k)) V over H heads, with projections of queries, keys, values and output.

    Optional submodules:
    query_norm, key_norm: called as `norm(x (B, T, D), mask (B, T))` on the projected queries or keys before they are
    split into heads (NSA: NG-SAN, Eq. 7);
    score_bias: `bias(query (B, T, D), key (B, S, D), geometry) -> (B, H, T, S)`, added to Q K^T before the division by
    sqrt(d_k) (GSA: NG-SAN, Eq. 10);
    rescale: `rescale(scores (B, H, T, S), geometry) -> (B, H, T, S)` of the divided scores, before the mask (DSA).

    Where the geometry has a window, no query attends outside it.
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
        """Create the projections.

        inner_dim: channels of queries, keys and values over all heads, `dim` by default; query_dim: those of queries
        and keys where they differ from the values' (Bhojanapalli et al., 2020).
        output: whether the heads are projected back to `dim`; otherwise they are concatenated to `inner_dim` channels.
        bias: whether the projections have one.
        talking: linear maps over the heads before and after the softmax (Shazeer et al., 2020, "Talking-heads").
        drop_head: probability in training of zeroing each head, for a whole batch at once; the others are divided by
        1 - drop_head.
        """
        super().__init__()
        inner_dim = dim if inner_dim is None else inner_dim
        query_dim = inner_dim if query_dim is None else query_dim
        for channels in (inner_dim, query_dim):
            if channels % num_heads:
                raise ValueError(f"dim {channels} is not divisible by num_heads={num_heads}")
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
        self.scale_by_dim = False
        """Whether scores are divided by sqrt(d) of all channels, as MD-SAN prints (Eqs. 2 and 8), and not sqrt(d_k)."""

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
        """Attend from T queries to S keys and values.

        attention_mask: True where a key may be attended to, by all queries or by each; every query needs one such key.
        With a query or key norm it is `(B, S)`, and queries and keys are the same regions. Raise DataError for
        a mask of numbers.
        geometry: input of `score_bias` and `rescale`. is_causal: query t attends to keys 0..t only.
        """
        check_mask(attention_mask)
        queries = self.queries(query, attention_mask)
        keys, values = self.keys_values(key, value, attention_mask)
        bias = None if self.score_bias is None else self.score_bias(query, key, geometry)
        mask = self._mask(attention_mask, geometry)
        return self.attend(queries, keys, values, mask, bias, geometry, is_causal=is_causal, need_weights=need_weights)

    def _mask(self, attention_mask: Mask, geometry: Geometry | None) -> Mask:
        return within_window(attention_mask, geometry)

    def keys_values(
        self, key: Float[Tensor, "B S D"], value: Float[Tensor, "B S D"], attention_mask: Mask = None
    ) -> tuple[Float[Tensor, "B H S d"], Float[Tensor, "B H S e"]]:
        """Return the projected keys and values, split into heads, as a decoder caches them."""
        k = self.key(key)
        if self.key_norm is not None:
            k = self.key_norm(k, attention_mask)
        return self._split(k), self._split(self.value(value))

    def queries(self, query: Float[Tensor, "B T D"], attention_mask: Mask = None) -> Float[Tensor, "B H T d"]:
        """Return the projected queries, split into heads."""
        q = self.query(query)
        if self.scale_by_dim:
            q = q * self.num_heads**-0.5
        if self.query_norm is not None:
            q = self.query_norm(q, attention_mask)
        return self._split(q)

    def attend(
        self,
        queries: Float[Tensor, "B H T d"],
        keys: Float[Tensor, "B H S d"],
        values: Float[Tensor, "B H S e"],
        attention_mask: Mask = None,
        bias: Float[Tensor, "B H T S"] | None = None,
        geometry: Geometry | None = None,
        *,
        is_causal: bool = False,
        need_weights: bool = False,
    ) -> AttentionOutput:
        """Attend with projected queries, keys and values.

        bias: added to Q K^T. PyTorch's fused kernel is used for scores that are only masked or biased, without weights.
        """
        check_mask(attention_mask)
        # PyTorch's CPU kernel has neither dropout nor a gradient of the bias
        drops_or_learns = (self.training and self.dropout > 0) or (bias is not None and bias.requires_grad)
        unfused = need_weights or self.rescale is not None or self.mix_scores is not None
        if unfused or (drops_or_learns and queries.device.type == "cpu"):
            allowed = broadcast_mask(queries, keys, attention_mask, is_causal)
            return self._explicit(queries, keys, values, allowed, bias, geometry)
        only_causal = is_causal and attention_mask is None and bias is None  # the kernel takes this or a mask, not both
        attn_mask = None if only_causal else broadcast_mask(queries, keys, attention_mask, is_causal)
        if bias is not None:  # which the kernel adds to the divided scores
            bias = (bias * keys.shape[-1] ** -0.5).to(queries.dtype)
            attn_mask = bias if attn_mask is None else bias.masked_fill(~attn_mask, float("-inf"))
        dropout_p = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask, dropout_p, only_causal)
        return AttentionOutput(self._merge(attended), None)

    def _explicit(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        allowed: Tensor | None,
        bias: Tensor | None,
        geometry: Geometry | None,
    ) -> AttentionOutput:
        scores = queries @ keys.transpose(-2, -1)
        if bias is not None:
            scores = scores + bias
        scores = scores * keys.shape[-1] ** -0.5
        if self.rescale is not None:
            scores = self.rescale(scores, geometry)
        if self.mix_scores is not None:
            scores = _mix_heads(self.mix_scores, scores)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, float("-inf"))
        weights = scores.softmax(dim=-1)
        if self.mix_weights is not None:
            weights = _mix_heads(self.mix_weights, weights)
        dropped = dropout(weights, self.dropout, self.training)
        return AttentionOutput(self._merge(dropped.to(values.dtype) @ values), weights)

    def _merge(self, heads: Float[Tensor, "B H T e"]) -> Float[Tensor, "B T D"]:
        if self.training and self.drop_head:
            kept = torch.rand(self.num_heads) >= self.drop_head
            heads = heads * (kept / (1 - self.drop_head)).to(heads)[:, None, None]
        return self.output(heads.transpose(1, 2).flatten(2))

    def _split(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T d"]:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def _mix_heads(mix: nn.Linear, x: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T S"]:
    return mix(as_weights_of(mix, x.movedim(1, -1))).movedim(-1, 1)


def within_window(attention_mask: Mask, geometry: Geometry | None) -> Mask:
    """Return the attention mask restricted to the local windows of the geometry, where it has any."""
    window = None if geometry is None else geometry.window
    if window is None or attention_mask is None:
        return attention_mask if window is None else window
    return window & (attention_mask.unsqueeze(1) if attention_mask.dim() == 2 else attention_mask)


def broadcast_mask(
    queries: Float[Tensor, "B H T d"], keys: Float[Tensor, "B H S d"], mask: Mask, is_causal: bool
) -> Bool[Tensor, "*dims"] | None:
    """Return which keys queries may attend to, by a mask, causally or both; it broadcasts to `(B, H, T, S)`."""
    allowed = None if mask is None else mask[:, None, None, :] if mask.dim() == 2 else mask[:, None]
    if not is_causal:
        return allowed
    past = torch.ones(queries.shape[2], keys.shape[2], dtype=torch.bool, device=queries.device).tril()
    return past if allowed is None else past & allowed
