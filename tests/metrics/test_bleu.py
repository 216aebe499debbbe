"""BLEU by hand and by law."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.metrics.bleu import bleu, bleu_statistics
from legenda.text.ngrams import Comparison

CAPTION = st.lists(st.sampled_from("abcde"), max_size=9)


def test_clipped_counts_and_brevity_by_hand():
    # "a" occurs twice in the candidate and once in either reference; 3 of 4 words and 1 of 3 pairs match.
    candidate = ["a", "b", "a", "c"]
    references = [["a", "b", "d"], ["e", "c", "a", "d", "f", "f"]]
    corpus, images = bleu([candidate], [references])
    assert corpus == images[0]
    # The reference of three words is the closest: no brevity penalty.
    assert corpus[0] == pytest.approx(3 / 4)
    assert corpus[1] == pytest.approx(math.sqrt(3 / 4 * 1 / 3))
    # Without a match the smoothing leaves a trace: (3/4 * 1/3 * 1e-15/2) ** (1/3).
    assert corpus[2] == pytest.approx((3 / 4 / 3 * 1e-15 / 2) ** (1 / 3), rel=1e-6)


@pytest.mark.parametrize(("lengths", "closest"), [((2, 6), 2), ((6, 2), 2), ((5, 2), 5), ((4, 9), 4)])
def test_the_closest_length_counts_and_the_shorter_of_two(lengths, closest):
    _, [scores] = bleu([["a"] * 4], [[["a"] * length for length in lengths]])
    assert scores[0] == pytest.approx(min(4, max(lengths)) / 4 * math.exp(min(0.0, 1 - closest / 4)))


def test_the_corpus_adds_counts_up():
    corpus, images = bleu([["a"], list("bcde")], [[["a"]], [list("bxxx")]])
    assert [image[0] for image in images] == pytest.approx([1, 1 / 4])
    assert corpus[0] == pytest.approx(2 / 5)


@given(st.lists(st.tuples(CAPTION, st.lists(CAPTION, min_size=1, max_size=3)), min_size=1, max_size=4))
def test_scores_stay_in_range_and_references_have_no_order(images):
    candidates, references = zip(*images, strict=True)
    corpus, scores = bleu(candidates, references)
    assert all(0 <= score <= 1.001 for row in (corpus, *scores) for score in row)
    assert bleu(candidates, [group[::-1] for group in references]) == (corpus, scores)


def test_statistics_by_hand():
    words = Comparison(["ab", "bcde", ""], [["ab"], ["bxx", "bcxxx"], ["a", ""]])
    assert bleu_statistics(words).tolist() == [
        [2, 1, 0, 0, 2, 1, 0, 0, 2, 2],
        [2, 1, 0, 0, 4, 3, 2, 1, 4, 3],
        [0] * 10,
    ]
