"""Weights of single heads, packed for a page and read again as the page reads them."""

import base64

import hypothesis.extra.numpy as arrays
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from legenda.visualization.report.encode_attention import pack_heads, packed_size

SHAPES = st.tuples(st.integers(0, 6), st.integers(1, 5), st.integers(1, 9))


def _unpacked(packed: dict, regions: int) -> np.ndarray:
    """What assets/head-choice.js makes of it, in the words of numpy."""
    largest = np.array(packed["largest"], dtype=float).reshape(-1, packed["count"])
    shares = np.frombuffer(base64.b64decode(packed["shares"]), dtype=np.uint8)
    return shares.reshape(*largest.shape, regions) / 255 * largest[..., None]


@given(SHAPES.flatmap(lambda shape: arrays.arrays(float, shape, elements=st.floats(0, 1))))
def test_no_weight_is_off_by_more_than_half_a_255th_of_the_largest(attention):
    words, heads, regions = attention.shape
    packed = pack_heads(attention)
    assert (packed["count"], len(packed["largest"])) == (heads, words)
    largest = attention.max(axis=-1, keepdims=True)
    error = abs(_unpacked(packed, regions) - attention)
    assert (error <= largest / 510 + 6e-5).all()  # the largest weight itself has four digits


def test_a_byte_a_weight_and_the_size_that_is_told():
    attention = np.random.default_rng(0).dirichlet(np.ones(49), (12, 8))
    packed = pack_heads(attention)
    told = len(packed["shares"]) + len(str(packed["largest"]))
    assert len(base64.b64decode(packed["shares"])) == attention.size
    assert abs(packed_size(attention) / told - 1) < 0.1
    assert packed["largest"][3][5] == round(float(attention[3, 5].max()), 4)
