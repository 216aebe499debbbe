"""Up-Down, the Meshed-Memory Transformer and ORT's attention against NumPy, written from the papers' equations.

The functions `updown`, `meshed` and `ort_attention` use nothing of the package. Their arguments are arrays with the
names and shapes of the equations; the tests copy the weights of models into them.
"""

import numpy as np
import pytest
import torch

import legenda
from legenda import Regions
from legenda.decoding import beam_search

RNG = np.random.default_rng(0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis=-1):
    x = np.exp(x - x.max(axis, keepdims=True))
    return x / x.sum(axis, keepdims=True)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def lstm(x, hidden, cell, W, U, b):
    """One step of an LSTM; the rows of W, U and b are input, forget, candidate and output gates."""
    i, f, g, o = np.split(W @ x + U @ hidden + b, 4)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


def updown(p, V, words):
    """Return log-probabilities `(T, V)` (Anderson et al., CVPR 2018, Eqs. 1 to 7) of one image `V (k, D)`."""
    M = p["W_ha"].shape[1]
    h1 = c1 = h2 = c2 = np.zeros(M)
    mean, rows = V.mean(0), []
    for word in words:
        h1, c1 = lstm(np.concatenate([h2, mean, p["W_e"][word]]), h1, c1, p["W_1"], p["U_1"], p["b_1"])
        scores = np.array([p["w_a"] @ np.tanh(p["W_va"] @ v + p["W_ha"] @ h1) for v in V])
        attended = softmax(scores) @ V
        h2, c2 = lstm(np.concatenate([attended, h1]), h2, c2, p["W_2"], p["U_2"], p["b_2"])
        rows.append(log_softmax(p["W_p"] @ h2 + p["b_p"]))
    return np.array(rows)


def linear(x, layer):
    W, b = layer
    return x @ W.T + b


def layer_norm(x, layer):
    gain, bias = layer
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gain + bias


def heads(x, count):
    return np.stack(np.split(x, count, axis=-1))


def attention(p, queries, inputs, count, slots=None, allowed=None):
    """Return MultiHead(queries, inputs); slots: learned keys and values `(m, d)` after those of the inputs (M2, Eq. 2).

    The slots are multiplied by the roots of d_k and of m.
    """
    Q, K, V = linear(queries, p["q"]), linear(inputs, p["k"]), linear(inputs, p["v"])
    d = Q.shape[-1] // count
    if slots is not None:
        K = np.concatenate([K, np.sqrt(d) * slots[0]])
        V = np.concatenate([V, np.sqrt(len(slots[1])) * slots[1]])
    parts = []
    for q, k, v in zip(heads(Q, count), heads(K, count), heads(V, count), strict=True):
        scores = q @ k.T / np.sqrt(d)
        if allowed is not None:
            scores = np.where(allowed, scores, -np.inf)
        parts.append(softmax(scores) @ v)
    return linear(np.concatenate(parts, -1), p["o"])


def feed_forward(p, x):
    return layer_norm(x + linear(np.maximum(linear(x, p["ff1"]), 0), p["ff2"]), p["ff_norm"])


def meshed(p, X, words, count):
    """Return log-probabilities `(T, V)` of M2 (Cornia et al., CVPR 2020, Eqs. 1 to 10) of one image `X (N, D)`.

    Each attention has a residual connection and layer normalization after it, as in Figure 2 and in the release.
    """
    x, levels = layer_norm(np.maximum(linear(X, p["input"]), 0), p["input_norm"]), []
    for layer in p["encoder"]:
        x = layer_norm(x + attention(layer, x, x, count, layer["slots"]), layer["norm"])
        x = feed_forward(layer, x)
        levels.append(x)
    T = len(words)
    y, causal = p["words"][words] + p["positions"][1 : T + 1], np.tril(np.ones((T, T), bool))
    for layer in p["decoder"]:
        y = layer_norm(y + attention(layer["self"], y, y, count, allowed=causal), layer["self_norm"])
        total = np.zeros_like(y)
        for level, gate in zip(levels, layer["gates"], strict=True):
            crossed = layer_norm(y + attention(layer["cross"], y, level, count), layer["cross_norm"])
            total += sigmoid(linear(np.concatenate([y, crossed], -1), gate)) * crossed
        y = feed_forward(layer, total / np.sqrt(len(levels)))
    return log_softmax(y @ p["output"].T)


def ort_attention(p, x, boxes, count):
    """Return ORT's self-attention (Herdade et al., NeurIPS 2019, Eqs. 4 to 8) of one image.

    boxes: x1 y1 x2 y2. The displacement of Eq. 4 has at least 1e-3, the factor of Eq. 6 at least 1e-6.
    """
    center, size = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    Q, K, V = linear(x, p["q"]), linear(x, p["k"]), linear(x, p["v"])
    W_G, b_G = p["geometry"]
    d, channels, N = Q.shape[-1] // count, W_G.shape[1], len(x)
    embedded = np.zeros((N, N, channels))
    for m in range(N):
        for n in range(N):
            shift = np.maximum(np.abs(center[m] - center[n]) / size[m], 1e-3)
            relation = np.concatenate([np.log(shift), np.log(size[m] / size[n])])
            embedded[m, n] = [
                function(100 * value / 1000 ** (step / (channels // 8)))
                for value in relation
                for step in range(channels // 8)
                for function in (np.sin, np.cos)
            ]
    parts = []
    for h, (q, k, v) in enumerate(zip(heads(Q, count), heads(K, count), heads(V, count), strict=True)):
        factor = np.maximum(np.maximum(embedded @ W_G[h] + b_G[h], 0), 1e-6)
        weights = factor * np.exp(q @ k.T / np.sqrt(d))
        parts.append(weights / weights.sum(-1, keepdims=True) @ v)
    return linear(np.concatenate(parts, -1), p["o"])
