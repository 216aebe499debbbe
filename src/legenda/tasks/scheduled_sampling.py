"""Scheduled sampling: some words of the given captions are replaced by words that the model draws itself."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from legenda.decoding.sampling import sample_words
from legenda.models import Captioner
from legenda.regions import Memory


@torch.no_grad()
def mix_inputs(model: Captioner, memory: Memory, inputs: Int[Tensor, "B K T"], share: float) -> Int[Tensor, "B K T"]:
    """`inputs` with each word after the first replaced, with probability `share`, by a draw of the model.

    The draw for a position is made from the model's distribution after all inputs before it, replaced ones included, in
    each row by itself (Bengio et al., 2015; AoANet and X-LAN as released). The gradient is then taken through one pass
    over these inputs, where the releases draw within that pass; with dropout the two see other words left out.
    """
    B, K, T = inputs.shape
    replaced = torch.rand(B, K, T, device=inputs.device) < share
    mixed = inputs.clone()
    state = model.decoder.start(memory, K)
    for t in range(T - 1):
        logits, state = model.decoder.step(mixed[..., t], state, memory)
        mixed[..., t + 1] = torch.where(replaced[..., t + 1], sample_words(logits), inputs[..., t + 1])
    return mixed
