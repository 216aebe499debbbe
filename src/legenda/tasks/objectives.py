"""Training losses as functions of tensors."""

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
    label_smoothing_target: Literal["all", "non_target"] = "all",
    *,
    reduction: Literal["mean", "sum"] = "mean",
) -> Float[Tensor, ""]:
    """Return the mean or summed negative log-likelihood of the targets in nats; targets of -1 are ignored.

    The mass `label_smoothing` is spread uniformly over the vocabulary ("all"; Szegedy et al., 2016), or over all words
    but the target ("non_target"). With "non_target" the loss is the KL divergence from the smoothed targets, as AoANet
    and X-Transformer have released it: the cross-entropy minus a constant.
    """
    smoothing, constant = label_smoothing, 0.0
    if label_smoothing_target == "non_target" and label_smoothing:
        V = logits.shape[-1]
        smoothing = label_smoothing * V / (V - 1)  # of which the target gets 1/V back
        confidence = 1 - label_smoothing
        constant = confidence * math.log(confidence) + label_smoothing * math.log(label_smoothing / (V - 1))
    loss = F.cross_entropy(
        logits.flatten(0, -2).to(torch.promote_types(logits.dtype, torch.float32)),
        targets.flatten(),
        ignore_index=PADDING,
        label_smoothing=smoothing,
        reduction=reduction,
    )
    if not constant:
        return loss
    return loss + constant * (1 if reduction == "mean" else (targets != PADDING).sum())


def token_mask(tokens: Int[Tensor, "B K T"], eos_token_id: int) -> Bool[Tensor, "B K T"]:
    """Return True for the tokens of each caption up to its first end token, which is included."""
    is_eos = tokens == eos_token_id
    return (is_eos.cumsum(dim=-1) - is_eos.long()) == 0


def advantages(
    rewards: Float[Tensor, "B K"],
    baseline: Literal["greedy", "mean_of_others", "mean"],
    greedy: Float[Tensor, "B 1"] | None = None,
    mask: Bool[Tensor, "B K"] | None = None,
) -> Float[Tensor, "B K"]:
    """Return rewards minus the baseline; 0 for captions outside `mask`, which enter no mean.

    The baselines "greedy" (Rennie et al., 2017) and "mean_of_others" do not depend on the caption itself, so the
    estimate of the policy gradient is unbiased; "mean" only scales it by (K - 1) / K where captions are sampled
    independently.
    """
    mask = torch.ones_like(rewards, dtype=torch.bool) if mask is None else mask
    rewards = rewards.masked_fill(~mask, 0.0)
    count, total = mask.sum(dim=1, keepdim=True), rewards.sum(dim=1, keepdim=True)
    if baseline == "greedy":
        assert greedy is not None
        subtracted = greedy
    elif baseline == "mean_of_others":
        subtracted = (total - rewards) / (count - 1).clamp(min=1)
    else:
        subtracted = total / count.clamp(min=1)
    return (rewards - subtracted).masked_fill(~mask, 0.0)


def policy_gradient(
    log_probs: Float[Tensor, "B K T"], advantage: Float[Tensor, "B K"], mask: Bool[Tensor, "B K T"]
) -> Float[Tensor, ""]:
    """Return minus the sum over captions of advantage times log-probability (REINFORCE; Williams, 1992).

    No gradient flows into the advantage.
    """
    log_likelihood = log_probs.masked_fill(~mask, 0.0).sum(dim=-1)
    return -(log_likelihood * advantage.detach().to(log_likelihood.dtype)).sum()


def policy_gradient_normalizer(
    loss_reduction: Literal["token", "sequence", "max_length"],
    mask: Bool[Tensor, "B K T"],
    max_length: int,
) -> float:
    """Return what `policy_gradient` is divided by: tokens, captions, or captions times `max_length`."""
    if loss_reduction == "token":
        return float(mask.sum())
    captions = float(mask.any(dim=-1).sum())
    return captions if loss_reduction == "sequence" else captions * max_length
