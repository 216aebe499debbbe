"""Functions that the oracles share, in float64 NumPy; a missing bias counts as zero."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Weights = Mapping[str, np.ndarray]


def linear(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    """Return `x W^T + b`."""
    return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)


def layer_norm(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    """Return the layer normalization of each row (biased variance, eps 1e-5)."""
    centered = x - x.mean(-1, keepdims=True)
    normalized = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    return normalized * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(log_softmax(x))


def split_heads(x: np.ndarray, num_heads: int) -> np.ndarray:
    """Return `(heads, n, d / heads)` from `(n, d)`."""
    return x.reshape(len(x), num_heads, -1).transpose(1, 0, 2)


def multi_head(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, num_heads: int, bias: np.ndarray | float = 0.0
) -> np.ndarray:
    """Return the concatenated heads `(n, d)` of projected queries `(n, d)`, keys and values `(m, d)`.

    `bias`, broadcast to `(heads, n, m)`, is added to the scores after they are divided by `sqrt(d_k)`.
    """
    q, k, v = (split_heads(x, num_heads) for x in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]) + bias
    return (softmax(scores) @ v).transpose(1, 0, 2).reshape(q.shape[1], -1)


def causal(n: int) -> np.ndarray:
    """Return the bias `(n, n)` that hides later tokens: 0 up to the diagonal, -inf above it."""
    return np.where(np.tri(n, dtype=bool), 0.0, -np.inf)


def sinusoids(positions: np.ndarray, d: int) -> np.ndarray:
    """Return `(n, d)`: sin and cos of `position / 10000^(2 i / d)` in turn (Vaswani et al., section 3.5)."""
    angles = positions[:, None] / 10000 ** (2 * np.arange(d // 2) / d)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(positions), d)
