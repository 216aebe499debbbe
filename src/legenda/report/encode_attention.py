"""Attention weights of single heads, quantized to one byte each to keep the page small."""

import base64
from typing import Any

import numpy as np


def encode_attention(attention: np.ndarray) -> dict[str, Any]:
    """Return non-negative weights `(T, H, N)` in a JSON form that assets/head-choice.js decodes.

    count: H. largest: the largest weight of each word and head, T lists of H. levels: every weight in units of 1/255
    of that largest one, a byte each in the order of the array, in base64. A decoded weight is off by at most half a
    unit, and by 0.00005 more because the largest weights have four decimals.
    """
    largest = attention.max(axis=-1, initial=0.0)
    ratios = np.divide(attention, largest[..., None], out=np.zeros_like(attention), where=largest[..., None] > 0)
    levels = np.round(ratios * 255).astype(np.uint8)
    return {
        "count": attention.shape[1],
        "largest": np.round(largest, 4).tolist(),
        "levels": base64.b64encode(levels.tobytes()).decode(),
    }


def encoded_size(attention: np.ndarray) -> int:
    """Return the approximate number of characters of `encode_attention`."""
    return attention.size * 4 // 3 + 7 * (attention.size // max(1, attention.shape[-1]))
