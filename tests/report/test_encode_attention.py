"""encode_attention: quantized weights, decoded as the page does."""

import base64

import hypothesis.extra.numpy as arrays
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from legenda.report.encode_attention import encode_attention, encoded_size

SHAPES = st.tuples(st.integers(0, 6), st.integers(1, 5), st.integers(1, 9))


def _decode(encoded: dict, regions: int) -> np.ndarray:
    """Decode as assets/head-choice.js does."""
    largest = np.array(encoded["largest"], dtype=float).reshape(-1, encoded["count"])
    levels = np.frombuffer(base64.b64decode(encoded["levels"]), dtype=np.uint8)
    return levels.reshape(*largest.shape, regions) / 255 * largest[..., None]


@given(SHAPES.flatmap(lambda shape: arrays.arrays(float, shape, elements=st.floats(0, 1))))
def test_quantization_error_is_at_most_half_a_level(attention):
    words, heads, regions = attention.shape
    encoded = encode_attention(attention)
    assert (encoded["count"], len(encoded["largest"])) == (heads, words)
    largest = attention.max(axis=-1, keepdims=True)
    error = abs(_decode(encoded, regions) - attention)
    assert (error <= largest / 510 + 6e-5).all()  # the largest weight itself has four digits


def test_one_byte_per_weight_and_estimated_size():
    attention = np.random.default_rng(0).dirichlet(np.ones(49), (12, 8))
    encoded = encode_attention(attention)
    characters = len(encoded["levels"]) + len(str(encoded["largest"]))
    assert len(base64.b64decode(encoded["levels"])) == attention.size
    assert abs(encoded_size(attention) / characters - 1) < 0.1
    assert encoded["largest"][3][5] == round(float(attention[3, 5].max()), 4)
