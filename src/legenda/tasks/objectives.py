"""What training minimises, as functions of tensors."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

PADDING = -1


def cross_entropy(
    logits: Float[Tensor, "B K T V"],
    targets: Int[Tensor, "B K T"],
    label_smoothing: float = 0.0,
    smoothing: Literal["all", "others"] = "all",
    *,
    reduction: Literal["mean", "sum"] = "mean",
) -> Float[Tensor, ""]:
    """Mean negative log-probability of the target words, in nats per word; targets of -1 do not count.

    A share `label_smoothing` of each target is spread evenly over the vocabulary ("all"; Szegedy et al., 2016), or over
    all words but the target ("others"). With "others" the loss is the divergence of the model from those targets, as
    AoANet and X-Transformer have released it: cross-entropy less a constant. reduction: "sum" leaves out the division
    by the number of words.
    """
    spread, constant = label_smoothing, 0.0
    if smoothing == "others" and label_smoothing:
        V = logits.shape[-1]
        spread = label_smoothing * V / (V - 1)  # of which the target gets 1/V back
        kept = 1 - label_smoothing
        constant = kept * math.log(kept) + label_smoothing * math.log(label_smoothing / (V - 1))
    total = F.cross_entropy(
        logits.flatten(0, -2).to(torch.promote_types(logits.dtype, torch.float32)),
        targets.flatten(),
        ignore_index=PADDING,
        label_smoothing=spread,
        reduction=reduction,
    )
    if not constant:
        return total
    return total + constant * (1 if reduction == "mean" else (targets != PADDING).sum())


def spoken(tokens: Int[Tensor, "B K T"], end_id: int) -> Bool[Tensor, "B K T"]:
    """Which tokens belong to a caption: all up to its first end, that included."""
    ended = (tokens == end_id).cumsum(dim=-1)
    return (ended - (tokens == end_id).long()) == 0


def advantages(
    rewards: Float[Tensor, "B K"],
    baseline: Literal["greedy", "mean_of_others", "mean"],
    greedy: Float[Tensor, "B 1"] | None = None,
    real: Bool[Tensor, "B K"] | None = None,
) -> Float[Tensor, "B K"]:
    """Rewards less the baseline; 0 for rows that are not `real`, which enter no mean.

    With a baseline that does not depend on the caption itself, "greedy" (Rennie et al., 2017) and "mean_of_others", the
    gradient of the expected reward is estimated without bias; "mean" shrinks it by (K - 1) / K where the captions are
    drawn independently, and nothing else.
    """
    real = torch.ones_like(rewards, dtype=torch.bool) if real is None else real
    rewards = rewards.masked_fill(~real, 0.0)
    count, total = real.sum(dim=1, keepdim=True), rewards.sum(dim=1, keepdim=True)
    if baseline == "greedy":
        assert greedy is not None
        compared = greedy
    elif baseline == "mean_of_others":
        compared = (total - rewards) / (count - 1).clamp(min=1)
    else:
        compared = total / count.clamp(min=1)
    return (rewards - compared).masked_fill(~real, 0.0)


def policy_gradient(
    log_probs: Float[Tensor, "B K T"], advantage: Float[Tensor, "B K"], counted: Bool[Tensor, "B K T"]
) -> Float[Tensor, ""]:
    """Minus the sum over captions of advantage times log-probability (Williams, 1992); no gradient enters the first."""
    said = log_probs.masked_fill(~counted, 0.0).sum(dim=-1)
    return -(said * advantage.detach().to(said.dtype)).sum()


def denominator(
    mean: Literal["tokens", "captions", "places"],
    counted: Bool[Tensor, "B K T"],
    max_length: int,
) -> float:
    """What the sum of `policy_gradient` is divided by: words, captions, or captions times the longest length."""
    if mean == "tokens":
        return float(counted.sum())
    captions = float(counted.any(dim=-1).sum())
    return captions if mean == "captions" else captions * max_length
