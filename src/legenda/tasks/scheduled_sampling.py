"""Scheduled sampling (Bengio et al., 2015)."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from legenda.decoding.sampling import sample_token
from legenda.models import Captioner
from legenda.regions import Memory


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
