"""Scores and means of embedded products of queries and keys, for X-Linear attention (X-LAN, Eqs. 2 to 4)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import Function
from torch.nn import functional as F

from legenda.attention.dropout import dropout
from legenda.packed_weights import linear

_multiply = partial(linear, min_numel=0)  # many products with few weights

_BLOCK_SIZE = {"cpu": 2**19}
_DEFAULT_BLOCK_SIZE = 2**26
"""Products q * k that are computed at once: on CPUs as many as the L2 cache holds."""


def score_pairs(
    queries: Float[Tensor, "B H T d"],
    keys: Float[Tensor, "B H S d"],
    embed: nn.Linear,
    score_proj: nn.Linear,
    mean_weights: Float[Tensor, "#T #B #H #S"],
    rate: float,
) -> tuple[Float[Tensor, "T B H S"], Float[Tensor, "T B H c"]]:
    """Return the scores and the means over the keys of B' = dropout(ReLU(W (q * k) + b)), computed in blocks.

    embed: W and b, from d to c channels. score_proj: the linear layer from B' to a score. mean_weights: the weight of
    each key in the mean. rate: of dropout. All arguments but `mean_weights` get gradients, and gradients of gradients.
    Under autocast, products are computed in its dtype. The same values as `score_pairs_reference`.

    The blocks save memory: a cross-entropy step of X-Transformer (benchmarks/models.py, task `xe`, 10 images x 5 rows,
    AMD EPYC, products by MKL) peaks at 4.1 GB and takes 6.0 CPU seconds, with the reference 6.3 GB and 6.5 s.
    """
    device = embed.weight.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else embed.weight.dtype
    biases = [None if layer.bias is None else layer.bias.to(dtype) for layer in (embed, score_proj)]
    maps = embed.weight.to(dtype), biases[0], score_proj.weight.to(dtype), biases[1]
    queries, keys, mean_weights = queries.to(dtype), keys.to(dtype), mean_weights.to(dtype)
    if torch.compiler.is_compiling():  # the number of blocks depends on sizes that are dynamic in an exported graph
        shape = (queries.shape[2], *queries.shape[:2], keys.shape[2], len(embed.weight))
        kept = dropout(queries.new_ones(shape), rate) if rate else None
        return score_pairs_reference(queries, keys, *maps, mean_weights, kept)
    return _ScoredPairs.apply(queries, keys, *maps, mean_weights, rate, torch.is_grad_enabled())


def score_pairs_reference(
    queries: Float[Tensor, "B H T d"],
    keys: Float[Tensor, "B H S d"],
    weight: Float[Tensor, "c d"],
    bias: Float[Tensor, " c"] | None,
    score_proj: Float[Tensor, "1 c"],
    score_proj_bias: Float[Tensor, " 1"] | None,
    mean_weights: Float[Tensor, "#T #B #H #S"],
    kept: Float[Tensor, "T B H S c"] | None = None,
) -> tuple[Float[Tensor, "T B H S"], Float[Tensor, "T B H c"]]:
    """Return the results of `score_pairs` from the formula, with all products q * k at once.

    kept: the mask of dropout, 0 or 1 / (1 - rate); None for no dropout.
    """
    pairs = F.linear(_by_query(queries) * keys, weight, bias).relu()
    pairs = pairs if kept is None else pairs * kept
    mean_weights = mean_weights.expand(*mean_weights.shape[:-1], keys.shape[2])
    return F.linear(pairs, score_proj, score_proj_bias).squeeze(-1), (mean_weights.unsqueeze(-2) @ pairs).squeeze(-2)


def _blocks(T: int, B: int, size: int, device: str) -> Iterator[tuple[slice, slice]]:
    """Yield the slices of queries and images of each block; `size`: products of one query of one image."""
    capacity = max(1, _BLOCK_SIZE.get(device, _DEFAULT_BLOCK_SIZE) // size)
    queries, images = max(1, capacity // B), min(B, capacity)
    for first in range(0, B, images):
        for t in range(0, T, queries):
            yield slice(t, t + queries), slice(first, first + images)


def _by_query(queries: Float[Tensor, "B H T d"]) -> Float[Tensor, "T B H 1 d"]:
    return queries.movedim(2, 0).contiguous().unsqueeze(3)


class _ScoredPairs(Function):
    """Scores and means in blocks, whose intermediate tensors stay in the processor's cache.

    All products q * k at once are images x queries x keys x dim numbers, saved for the backward pass and read again by
    every step of the formula. Here only B' is saved: where it is positive, ReLU and dropout pass the gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        score_proj: Tensor,
        score_proj_bias: Tensor | None,
        mean_weights: Tensor,
        rate: float,
        keep: bool,
    ) -> tuple[Tensor, Tensor]:
        B, H, T, d = queries.shape
        S, c = keys.shape[2], len(weight)
        full, by_query, mean_weights = keys.contiguous(), _by_query(queries), mean_weights.expand(T, B, -1, S)
        kept = queries.new_empty(T, B, H, S, c) if keep else None
        scores, means = queries.new_empty(T, B, H, S), queries.new_empty(T, B, H, c)
        for t, b in _blocks(T, B, H * S * d, queries.device.type):
            pairs = dropout(_multiply(by_query[t, b] * full[b], weight, bias).relu_(), rate, inplace=True)
            scores[t, b] = pairs @ score_proj[0]
            means[t, b] = (mean_weights[t, b].unsqueeze(-2) @ pairs).squeeze(-2)
            if kept is not None:
                kept[t, b] = pairs
        if score_proj_bias is not None:
            scores += score_proj_bias
        ctx.save_for_backward(queries, keys, weight, bias, score_proj, score_proj_bias, mean_weights, kept)
        ctx.rate = rate
        return scores, means

    @staticmethod
    def backward(ctx: Any, to_scores: Tensor, to_means: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        queries, keys, weight, bias, score_proj, score_proj_bias, mean_weights, kept = ctx.saved_tensors
        scale = 0.0 if ctx.rate == 1 else 1 / (1 - ctx.rate)
        if torch.is_grad_enabled():  # gradients of these gradients are wanted
            mapped = (queries, keys, weight, bias, score_proj, score_proj_bias)
            return (
                *_differentiable_gradients(mapped, mean_weights, kept.sign() * scale, to_scores, to_means),
                None,
                None,
                None,
            )
        B, H, T, d = queries.shape
        S, c = keys.shape[2], len(weight)
        by_query, keys = _by_query(queries), keys.contiguous()
        to_scores, to_means = to_scores.contiguous(), to_means.contiguous()
        sums = torch.promote_types(weight.dtype, torch.float32)  # many terms add up, which half precision would lose
        to_queries = torch.empty_like(queries)
        to_keys, to_weight = torch.zeros_like(keys, dtype=sums), torch.zeros_like(weight, dtype=sums)
        to_bias, to_score_proj = weight.new_zeros(c, dtype=sums), torch.zeros_like(score_proj, dtype=sums)
        score_scale, mean_scale = score_proj[0] * scale, to_means.unsqueeze(-2) * scale
        for t, b in _blocks(T, B, H * S * d, queries.device.type):
            pairs = kept[t, b]
            grad = to_scores[t, b].unsqueeze(-1) * score_scale
            grad.addcmul_(mean_weights[t, b].unsqueeze(-1), mean_scale[t, b]).mul_(pairs.sign())
            rows, products = grad.view(-1, c), by_query[t, b] * keys[b]
            to_score_proj[0] += pairs.view(-1, c).T @ to_scores[t, b].flatten()
            to_bias += rows.sum(dim=0)
            to_weight += _multiply(rows.T, products.view(-1, d).T)
            to_products = _multiply(grad, weight.T)
            to_queries[b, :, t] = (to_products * keys[b]).sum(dim=3).movedim(0, 2)
            to_products.mul_(by_query[t, b])
            to_keys[b] += to_products[0] if len(to_products) == 1 else to_products.sum(dim=0)
        return (
            to_queries,
            to_keys.to(keys.dtype),
            to_weight.to(weight.dtype),
            to_bias.to(weight.dtype) if bias is not None else None,
            to_score_proj.to(score_proj.dtype),
            to_scores.sum().to(score_proj.dtype).view(1) if score_proj_bias is not None else None,
            None,
            None,
            None,
        )


def _differentiable_gradients(
    mapped: tuple[Tensor | None, ...], mean_weights: Tensor, mask: Tensor, to_scores: Tensor, to_means: Tensor
) -> tuple[Tensor | None, ...]:
    """Return the gradients of all tensors in `mapped` that have one, from the formula; mask: of ReLU and dropout."""
    # as tensors of their own, so that what one of them owes to another is not counted here
    aliases = [None if x is None else x.view_as(x) for x in mapped]
    queries, keys, weight, bias, score_proj, score_proj_bias = aliases
    assert queries is not None
    assert keys is not None
    assert weight is not None
    assert score_proj is not None
    results = score_pairs_reference(queries, keys, weight, bias, score_proj, score_proj_bias, mean_weights, mask)
    wanted = [x for x in aliases if x is not None and x.requires_grad]
    found = iter(torch.autograd.grad(results, wanted, (to_scores, to_means), create_graph=True))
    return tuple(next(found) if x is not None and x.requires_grad else None for x in aliases)
