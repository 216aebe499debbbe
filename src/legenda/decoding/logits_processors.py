"""Changes to log-probabilities before tokens are chosen; functions with a trailing underscore work in place."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def forbid_last_tokens_(
    log_probs: Float[Tensor, "B K V"],
    last_tokens: Int[Tensor, "B K"],
    forbidden: Int[Tensor, " tokens"],
    eos_token_id: int,
) -> None:
    """Set eos to -inf in the rows whose last token is one of `forbidden`."""
    is_forbidden = last_tokens.unsqueeze(-1).eq(forbidden).any(dim=-1)
    log_probs[..., eos_token_id].masked_fill_(is_forbidden, float("-inf"))


def count_repeated_ngrams(
    log_probs: Float[Tensor, "B K V"], tokens: Int[Tensor, "B K T"], size: int
) -> Float[Tensor, "B K V"]:
    """Return how often each token has followed the last `size - 1` tokens of its row before, in the dtype and shape of
    `log_probs`.
    """
    counts = torch.zeros_like(log_probs)
    if tokens.shape[-1] < size:
        return counts
    ngrams = tokens.unfold(-1, size, 1)
    same = (ngrams[..., :-1] == tokens[..., None, tokens.shape[-1] - size + 1 :]).all(dim=-1)
    return counts.scatter_add_(-1, ngrams[..., -1], same.to(counts.dtype))


def top_k_top_p_filter(
    log_probs: Float[Tensor, "B K V"], top_k: int | None, top_p: float | None
) -> Float[Tensor, "B K V"]:
    """Return -inf for all but the `top_k` likeliest tokens, and then but the fewest whose probabilities reach `top_p`.

    None turns either off. Of equally likely tokens exactly `top_k` are kept.
    """
    if top_k is not None and top_k < log_probs.shape[-1]:
        kept = log_probs.topk(top_k, dim=-1)
        log_probs = torch.full_like(log_probs, float("-inf")).scatter(-1, kept.indices, kept.values)
    if top_p is not None and top_p < 1:
        ordered, tokens = log_probs.sort(dim=-1, descending=True)
        probs = ordered.softmax(dim=-1)
        preceding = probs.cumsum(dim=-1) - probs
        removed = torch.zeros_like(preceding, dtype=torch.bool).scatter(-1, tokens, preceding >= top_p)
        log_probs = log_probs.masked_fill(removed, float("-inf"))
    return log_probs
