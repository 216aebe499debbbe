"""Object Relation Transformer (Herdade et al., NeurIPS 2019) in float64 NumPy.

Weights of the captioner: `input` (d, F); `encoder.{i}` and `decoder.{i}` with `{self, cross}.{q, k, v, o}`,
`geometry` (heads, 64), `ff.{1, 2}`, `norm.{self, cross, ff}`, each a `weight` and a `bias`; `embedding` (V, d);
`output.{weight, bias}`. Normalizations follow each sub-layer's sum, as in the Transformer's paper, or precede each
sub-layer, as in the release, which also normalizes the output of each stack: `encoder.norm`, `decoder.norm`.
"""

from __future__ import annotations

from collections.abc import Callable
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


def _layers(weights: Weights, name: str) -> list[str]:
    prefixes = (f"{name}.{i}" for i in count())
    return list(takewhile(lambda prefix: f"{prefix}.ff.1.weight" in weights, prefixes))


def log_probs(
    weights: Weights,
    features: np.ndarray,
    boxes: np.ndarray,
    tokens: np.ndarray,
    num_heads: int,
    *,
    norm_first: bool = False,
) -> np.ndarray:
    """Return `(T, V)` of one image: its valid regions `(N, F)`, their boxes `(N, 4)` and the input tokens `(T,)`."""

    def sublayer(name: str, x: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        if norm_first:
            return x + function(layer_norm(weights, name, x))
        return layer_norm(weights, name, x + function(x))

    def attend(name: str, x: np.ndarray, y: np.ndarray, bias: np.ndarray | float = 0.0) -> np.ndarray:
        q, k, v = (linear(weights, f"{name}.{letter}", z) for letter, z in (("q", x), ("k", y), ("v", y)))
        return linear(weights, f"{name}.o", multi_head(q, k, v, num_heads, bias))

    def feed_forward(layer: str, x: np.ndarray) -> np.ndarray:
        return linear(weights, f"{layer}.ff.2", np.maximum(linear(weights, f"{layer}.ff.1", x), 0))

    def last_norm(name: str, x: np.ndarray) -> np.ndarray:
        return layer_norm(weights, name, x) if f"{name}.weight" in weights else x

    x = np.maximum(linear(weights, "input", features), 0)
    for layer in _layers(weights, "encoder"):
        bias = relation(weights[f"{layer}.geometry.weight"], weights[f"{layer}.geometry.bias"], boxes)
        x = sublayer(f"{layer}.norm.self", x, lambda x, at=layer, bias=bias: attend(f"{at}.self", x, x, bias))
        x = sublayer(f"{layer}.norm.ff", x, lambda x, at=layer: feed_forward(at, x))
    memory = last_norm("encoder.norm", x)
    words = weights["embedding"][tokens]
    x = words * np.sqrt(words.shape[1]) + sinusoids(np.arange(len(tokens)), words.shape[1])
    for layer in _layers(weights, "decoder"):
        x = sublayer(f"{layer}.norm.self", x, lambda x, at=layer: attend(f"{at}.self", x, x, causal(len(x))))
        x = sublayer(f"{layer}.norm.cross", x, lambda x, at=layer: attend(f"{at}.cross", x, memory))
        x = sublayer(f"{layer}.norm.ff", x, lambda x, at=layer: feed_forward(at, x))
    return log_softmax(linear(weights, "output", last_norm("decoder.norm", x)))
