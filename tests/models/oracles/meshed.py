"""Meshed-Memory Transformer (Cornia et al., CVPR 2020) in float64 NumPy, with the release's names of tensors.

Sub-layers are post-norm. As in the release, learned keys are multiplied by sqrt(d_k) and learned values by sqrt(m), the
meshed sum is divided by sqrt(layers of the encoder), words count from position 1, and the output has no bias.
"""

from __future__ import annotations

from itertools import count, takewhile

import numpy as np
from oracles.numerics import Weights, causal, layer_norm, linear, log_softmax, multi_head, sigmoid, sinusoids


def _attention(
    weights: Weights, name: str, x: np.ndarray, y: np.ndarray, num_heads: int, bias: np.ndarray | float = 0.0
) -> np.ndarray:
    """Return LN(x + heads of the queries x over y and the learned slots, projected)."""
    inner = f"{name}.attention"
    q, k, v = (linear(weights, f"{inner}.fc_{letter}", z) for letter, z in (("q", x), ("k", y), ("v", y)))
    if f"{inner}.m_k" in weights:
        slots_k, slots_v = weights[f"{inner}.m_k"][0], weights[f"{inner}.m_v"][0]
        k = np.concatenate([k, slots_k * np.sqrt(q.shape[1] // num_heads)])
        v = np.concatenate([v, slots_v * np.sqrt(len(slots_v))])
    return layer_norm(
        weights, f"{name}.layer_norm", x + linear(weights, f"{inner}.fc_o", multi_head(q, k, v, num_heads, bias))
    )


def _feed_forward(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    out = linear(weights, f"{name}.fc2", np.maximum(linear(weights, f"{name}.fc1", x), 0))
    return layer_norm(weights, f"{name}.layer_norm", x + out)


def _layers(weights: Weights, name: str) -> list[str]:
    prefixes = (f"{name}.layers.{i}" for i in count())
    return list(takewhile(lambda prefix: f"{prefix}.pwff.fc1.weight" in weights, prefixes))


def encode(weights: Weights, features: np.ndarray, num_heads: int) -> list[np.ndarray]:
    """Return the outputs `(N, d)` of all encoder layers for the valid regions `(N, F)` of one image."""
    x = layer_norm(weights, "encoder.layer_norm", np.maximum(linear(weights, "encoder.fc", features), 0))
    outputs = []
    for layer in _layers(weights, "encoder"):
        x = _feed_forward(weights, f"{layer}.pwff", _attention(weights, f"{layer}.mhatt", x, x, num_heads))
        outputs.append(x)
    return outputs


def log_probs(weights: Weights, features: np.ndarray, tokens: np.ndarray, num_heads: int) -> np.ndarray:
    """Return `(T, V)` of one image: its valid regions `(N, F)` and the input tokens `(T,)`, the first one <bos>.

    Positions are sinusoids unless the weights hold the release's table `decoder.pos_emb.weight`.
    """
    memories = encode(weights, features, num_heads)
    words = weights["decoder.word_emb.weight"][tokens]
    positions = np.arange(1, len(tokens) + 1)
    if "decoder.pos_emb.weight" in weights:
        x = words + weights["decoder.pos_emb.weight"][positions]
    else:
        x = words + sinusoids(positions, words.shape[1])
    for layer in _layers(weights, "decoder"):
        x = _attention(weights, f"{layer}.self_att", x, x, num_heads, causal(len(x)))
        meshed = np.zeros_like(x)
        for i, memory in enumerate(memories, 1):
            cross = _attention(weights, f"{layer}.enc_att", x, memory, num_heads)
            gate = sigmoid(linear(weights, f"{layer}.fc_alpha{i}", np.concatenate([x, cross], -1)))
            meshed += gate * cross
        x = _feed_forward(weights, f"{layer}.pwff", meshed / np.sqrt(len(memories)))
    return log_softmax(linear(weights, "decoder.fc", x))
