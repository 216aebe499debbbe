"""Object Relation Transformer (Herdade et al., NeurIPS 2019) in float64 NumPy.

Weights of the captioner: `input` (d, F); `encoder.{i}` and `decoder.{i}` with `{self, cross}.{q, k, v, o}`,
`geometry` (heads, 64), `ff.{1, 2}`, `norm.{self, cross, ff}`, each a `weight` and a `bias`; `embedding` (V, d);
`output.{weight, bias}`. Sub-layers are post-norm.
"""

from __future__ import annotations

from itertools import count, takewhile

import numpy as np
from oracles.numerics import Weights, causal, layer_norm, linear, log_softmax, multi_head, sinusoids


def displacement(boxes: np.ndarray) -> np.ndarray:
    """Return `(N, N, 4)` of boxes (x1, y1, x2, y2), row m and column n.

    It holds log(|x_m - x_n| / w_m), log(|y_m - y_n| / h_m), log(w_m / w_n), log(h_m / h_n), x and y being centers; the
    first two ratios are at least 1e-3. The last two have the release's sign (and NG-SAN's, its equation 8), which the
    paper prints reversed.
    """
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2
    sizes = boxes[:, 2:] - boxes[:, :2]
    distances = np.abs(centers[:, None] - centers[None]) / sizes[:, None]
    return np.concatenate([np.log(np.maximum(distances, 1e-3)), np.log(sizes[:, None] / sizes[None])], -1)


def embedding(geometry: np.ndarray, d: int = 64) -> np.ndarray:
    """Return `(N, N, d)`: sin of all, then cos of all, of 100 x / 1000^(8 j / d), j < d / 8, for the four numbers x."""
    frequencies = 100 / 1000 ** (np.arange(d // 8) / (d / 8))
    angles = (geometry[..., None] * frequencies).reshape(*geometry.shape[:2], -1)
    return np.concatenate([np.sin(angles), np.cos(angles)], -1)


def relation(weight: np.ndarray, bias: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return `(heads, N, N)`, what is added to the scaled scores: log(max(ReLU(embedding W^T + b), 1e-6)).

    The softmax of the sum is w_G exp(w_A) / sum w_G exp(w_A) as in the paper. `weight` is `(heads, 64)` and `bias`
    `(heads,)`.
    """
    geometry = np.maximum(embedding(displacement(boxes), weight.shape[1]) @ weight.T + bias, 0)
    return np.log(np.maximum(geometry, 1e-6)).transpose(2, 0, 1)


def _attention(
    weights: Weights,
    layer: str,
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    num_heads: int,
    bias: np.ndarray | float = 0.0,
) -> np.ndarray:
    q, k, v = (linear(weights, f"{layer}.{name}.{letter}", z) for letter, z in (("q", x), ("k", y), ("v", y)))
    out = linear(weights, f"{layer}.{name}.o", multi_head(q, k, v, num_heads, bias))
    return layer_norm(weights, f"{layer}.norm.{name}", x + out)


def _feed_forward(weights: Weights, layer: str, x: np.ndarray) -> np.ndarray:
    out = linear(weights, f"{layer}.ff.2", np.maximum(linear(weights, f"{layer}.ff.1", x), 0))
    return layer_norm(weights, f"{layer}.norm.ff", x + out)


def _layers(weights: Weights, name: str) -> list[str]:
    prefixes = (f"{name}.{i}" for i in count())
    return list(takewhile(lambda prefix: f"{prefix}.ff.1.weight" in weights, prefixes))


def log_probs(
    weights: Weights, features: np.ndarray, boxes: np.ndarray, tokens: np.ndarray, num_heads: int
) -> np.ndarray:
    """Return `(T, V)` of one image: its valid regions `(N, F)`, their boxes `(N, 4)` and the input tokens `(T,)`."""
    x = np.maximum(linear(weights, "input", features), 0)
    for layer in _layers(weights, "encoder"):
        bias = relation(weights[f"{layer}.geometry.weight"], weights[f"{layer}.geometry.bias"], boxes)
        x = _feed_forward(weights, layer, _attention(weights, layer, "self", x, x, num_heads, bias))
    memory = x
    words = weights["embedding"][tokens]
    x = words * np.sqrt(words.shape[1]) + sinusoids(np.arange(len(tokens)), words.shape[1])
    for layer in _layers(weights, "decoder"):
        x = _attention(weights, layer, "self", x, x, num_heads, causal(len(x)))
        x = _feed_forward(weights, layer, _attention(weights, layer, "cross", x, memory, num_heads))
    return log_softmax(linear(weights, "output", x))
