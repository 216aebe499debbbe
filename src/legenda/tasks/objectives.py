"""Training losses as functions of tensors, and the objectives of captioning: cross-entropy with scheduled sampling."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from legenda.data.captions import CaptionDataset, EncodedCaptions
from legenda.decoding.search import sample_token
from legenda.errors import ConfigError
from legenda.models import Captioner
from legenda.regions import Memory, at_least_float32
from legenda.tasks.base import Batch, Objective, PreparedBatch, batch_to_regions, regions_to_batch

PADDING = -1


def cross_entropy(
    logits: Float[Tensor, "*rows V"],
    targets: Int[Tensor, "*rows"],
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
        if smoothing > 1:
            raise ConfigError(
                f"label_smoothing={label_smoothing} gives the target less than each of {V - 1} other words; lower it"
            )
        confidence = 1 - label_smoothing
        constant = confidence * math.log(confidence) + label_smoothing * math.log(label_smoothing / (V - 1))
    loss = F.cross_entropy(
        at_least_float32(logits.flatten(0, -2)),
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
    loss_reduction: Literal["token", "sequence", "max_length"], mask: Bool[Tensor, "B K T"], max_length: int
) -> float:
    """Return the divisor of `policy_gradient`: the number of tokens, of captions, or of captions times `max_length`."""
    if loss_reduction == "token":
        return float(mask.sum())
    captions = float(mask.any(dim=-1).sum())
    return captions if loss_reduction == "sequence" else captions * max_length


class CaptionObjective(Objective[CaptionDataset, Captioner]):
    """An objective on the regions and some reference captions of each image."""

    @cached_property
    def captions(self) -> EncodedCaptions:
        """The captions of the split as token ids of the model's vocabulary."""
        return EncodedCaptions.of(self.split, self.model.require_vocabulary(), self.config.max_caption_length)

    def sample_targets(self, indices: np.ndarray, generator: torch.Generator) -> Batch:
        """Return reference captions `(B, K, T)`, padded with -1."""
        return {"captions": self.captions.rows(indices, self.config.captions_per_image, generator)}

    def read(self, indices: np.ndarray) -> Batch:
        """Return the tensors of the images' regions."""
        return regions_to_batch(self.split.read(indices))

    def sum_cross_entropy(self, logits: Float[Tensor, "*rows V"], targets: Int[Tensor, "*rows"]) -> Float[Tensor, ""]:
        """Return the cross-entropy with the configured label smoothing, summed over the tokens that are not -1."""
        config = self.config
        return cross_entropy(logits, targets, config.label_smoothing, config.label_smoothing_target, reduction="sum")


class CrossEntropy(CaptionObjective):
    """Cross-entropy of the reference captions (teacher forcing)."""

    @torch.no_grad()
    def prepare(self, indices: np.ndarray, batch: Batch, epoch: int) -> PreparedBatch:  # noqa: ARG002
        """Return input and target tokens; scheduled sampling replaces some inputs by samples of the model."""
        inputs, targets = shift_right(batch["captions"], self.model.generation_config.eos_token_id)
        probability = self.config.scheduled_sampling.at(epoch)
        if probability:
            memory = self.model.encode(batch_to_regions(batch))
            inputs = apply_scheduled_sampling(self.model, memory, inputs, probability)
        num_tokens = float((targets != PADDING).sum())
        return PreparedBatch((inputs, targets), (num_tokens,))

    def forward(self, batch: Batch, *prepared: Tensor | None) -> tuple[Float[Tensor, ""]]:
        """Return the sum over all tokens."""
        inputs, targets = prepared
        assert targets is not None
        real = without_padding(targets.ne(PADDING))
        logits = self.model(batch_to_regions(batch), inputs, real)
        return (self.sum_cross_entropy(logits, targets if real is None else targets[real]),)


def without_padding(real: Bool[Tensor, "B K T"]) -> Bool[Tensor, "B K T"] | None:
    """Return which positions a decoder computes; None for all in torch.compile, where no size depends on lengths."""
    return None if torch.compiler.is_compiling() else real


def shift_right(captions: Int[Tensor, "B K T"], eos_token_id: int) -> tuple[Int[Tensor, "B K t"], Int[Tensor, "B K t"]]:
    """Return inputs and targets of captions that begin with the begin token and are padded with -1."""
    inputs = captions[..., :-1]
    return inputs.masked_fill(inputs == PADDING, eos_token_id), captions[..., 1:]


@torch.no_grad()
def apply_scheduled_sampling(
    model: Captioner, memory: Memory, inputs: Int[Tensor, "B K T"], probability: float
) -> Int[Tensor, "B K T"]:
    """Replace each token after the first, with the given probability, by a sample of the model.

    A sample is drawn from the model's distribution after all earlier inputs of its row, replaced ones included (AoANet
    and X-LAN as released). The gradient is then taken through one forward pass over these inputs, whereas the releases
    sample within that pass; with dropout, the two see different masks.
    """
    B, K, T = inputs.shape
    replaced = torch.rand(B, K, T, device=inputs.device) < probability
    mixed = inputs.clone()
    state = model.decoder.init_state(memory, K)
    for t in range(T - 1):
        logits, state = model.decoder.step(mixed[..., t], state, memory)
        mixed[..., t + 1] = torch.where(replaced[..., t + 1], sample_token(logits), inputs[..., t + 1])
    return mixed
