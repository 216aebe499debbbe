"""Up-Down captioner (Anderson et al., CVPR 2018, section 3.2) in float64 NumPy.

Weights, with F the feature size, E of words, H of both LSTMs, A of the attention (512), V words:
`embedding` (V, E); `attention_lstm.{weight_ih (4H, H + F + E), weight_hh (4H, H), bias}`, its input columns in the
order [h2, mean feature, word]; `attention.{features (A, F), hidden (A, H), score (1, A)}.{weight, bias}`;
`language_lstm.{weight_ih (4H, F + H), weight_hh, bias}`, its columns in the order [attended, h1];
`output.{weight, bias}` (V, H). Gates are stored as input, forget, cell, output. The paper's attention has no biases; if
given they are used.
"""

from __future__ import annotations

import numpy as np
from oracles.numerics import Weights, linear, log_softmax, sigmoid, softmax


def _lstm(weights: Weights, name: str, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    gates = weights[f"{name}.weight_ih"] @ x + weights[f"{name}.weight_hh"] @ h + weights[f"{name}.bias"]
    i, f, g, o = np.split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def log_probs(weights: Weights, features: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Return `(T, V)` of one image: its valid regions `(N, F)` and the input tokens `(T,)`, the first one <bos>."""
    size = weights["attention_lstm.weight_hh"].shape[1]
    h1, c1, h2, c2 = np.zeros((4, size))
    mean = features.mean(0)
    steps = []
    for token in tokens:
        h1, c1 = _lstm(weights, "attention_lstm", np.concatenate([h2, mean, weights["embedding"][token]]), h1, c1)
        hidden = np.tanh(linear(weights, "attention.features", features) + linear(weights, "attention.hidden", h1))
        attention = softmax(linear(weights, "attention.score", hidden)[:, 0])
        h2, c2 = _lstm(weights, "language_lstm", np.concatenate([attention @ features, h1]), h2, c2)
        steps.append(log_softmax(linear(weights, "output", h2)))
    return np.stack(steps)
