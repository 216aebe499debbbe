"""Objectives of captioning: what they share, and cross-entropy with scheduled sampling."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from legenda.data.captions import EncodedCaptions
from legenda.decoding.sampling import sample_token
from legenda.models import Captioner
from legenda.regions import Memory
from legenda.tasks.base import Batch, Loss, Objective, PreparedBatch, batch_to_regions, regions_to_batch
from legenda.tasks.objectives import PADDING, cross_entropy


class CaptionObjective(Objective):
    """An objective on the regions and some reference captions of each image."""

    model: Captioner

    @cached_property
    def captions(self) -> EncodedCaptions:
        """The captions of the split as token ids of the model's vocabulary."""
        assert self.model.vocabulary is not None
        return EncodedCaptions.of(self.split, self.model.vocabulary, self.config.max_caption_length)

    def sample_targets(self, indices: np.ndarray, generator: torch.Generator) -> Batch:
        """Return reference captions `(B, K, T)`, padded with -1."""
        return {"captions": self.captions.rows(indices, self.config.captions_per_image, generator)}

    def read(self, indices: np.ndarray) -> Batch:
        """Return the tensors of the images' regions."""
        return regions_to_batch(self.split.read(indices))

    def sum_cross_entropy(self, logits: Float[Tensor, "B K T V"], targets: Int[Tensor, "B K T"]) -> Float[Tensor, ""]:
        """Return the cross-entropy with the configured label smoothing, summed over tokens."""
        config = self.config
        return cross_entropy(logits, targets, config.label_smoothing, config.label_smoothing_target, reduction="sum")


class CrossEntropy(CaptionObjective):
    """Cross-entropy of the reference captions, all positions of all rows at once (teacher forcing)."""

    @torch.no_grad()
    def prepare(self, indices: np.ndarray, batch: Batch, epoch: int) -> PreparedBatch:  # noqa: ARG002
        """Return input and target tokens; scheduled sampling replaces some inputs by samples of the model."""
        inputs, targets = shift_right(batch["captions"], self.model.generation_config.eos_token_id)
        probability = self.config.scheduled_sampling.at(epoch)
        if probability:
            memory = self.model.encode(batch_to_regions(batch))
            inputs = apply_scheduled_sampling(self.model, memory, inputs, probability)
        num_tokens = float((targets != PADDING).sum())
        return PreparedBatch((inputs, targets), (num_tokens,), lambda total: Loss((total,)))

    def forward(self, batch: Batch, *prepared: Tensor | None) -> Float[Tensor, ""]:
        """Return the sum over all tokens."""
        inputs, targets = prepared
        assert inputs is not None
        assert targets is not None
        return self.sum_cross_entropy(self.model(batch_to_regions(batch), inputs), targets)


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
