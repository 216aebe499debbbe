"""The weights of single heads, packed for a page: one byte a weight instead of its digits."""

import base64
from typing import Any

import numpy as np


def pack_heads(attention: np.ndarray) -> dict[str, Any]:
    """The weights `(T, H, N)`, not negative, as JSON knows them; assets/head-choice.js unpacks them.

    count: H. largest: the largest weight of each word and head, T rows of H. shares: every weight as so many 255ths of
    that largest one, a byte each in the order of the array, in base64. What is unpacked is off by at most half of such
    a part, and by 0.00005 more as the largest is told with four decimals.
    """
    largest = attention.max(axis=-1, initial=0.0)
    parts = np.divide(attention, largest[..., None], out=np.zeros_like(attention), where=largest[..., None] > 0)
    shares = np.round(parts * 255).astype(np.uint8)
    return {
        "count": attention.shape[1],
        "largest": np.round(largest, 4).tolist(),
        "shares": base64.b64encode(shares.tobytes()).decode(),
    }


def packed_size(attention: np.ndarray) -> int:
    """Characters that `pack_heads` takes in a page, about: those of the bytes and of the largest weights."""
    return attention.size * 4 // 3 + 7 * (attention.size // max(1, attention.shape[-1]))
