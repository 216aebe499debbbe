"""Diversity: cases worked by hand, and laws."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.errors import LegendaError
from legenda.metrics import DocumentFrequencies, measure_diversity, score_oracle
from legenda.metrics.cider import cider

SAMPLES = {1: ["A dog runs.", "A dog runs.", "a cat sits"], 2: ["two boats at sea", "two boats", "ships"]}
CAPTIONS = st.lists(st.lists(st.sampled_from("abcdef"), max_size=6).map(" ".join), min_size=2, max_size=5)


def test_distinct_ngrams_by_hand():
    found = measure_diversity(SAMPLES)
    # Image 1: a dog runs cat sits, of 9 words; a-dog dog-runs a-cat cat-sits. Image 2: two boats at sea ships, of 7.
    assert found.distinct[:2] == pytest.approx(((5 / 9 + 5 / 7) / 2, (4 / 9 + 3 / 7) / 2))
    assert found.distinct[2:] == pytest.approx(((2 / 9 + 2 / 7) / 2, (0 / 9 + 1 / 7) / 2))
    assert found.per_image[2]["distinct-1"] == pytest.approx(5 / 7)


def test_the_kernel_is_cider():
    """Two captions' CIDEr, as metrics/cider.py has it, is what stands between them."""
    references = {1: ["a dog runs in the park", "dogs run"], 2: ["a cat sits"], 3: ["the park at night", "a park"]}
    tokens = [[caption.split() for caption in group] for group in references.values()]
    frequencies = DocumentFrequencies.from_references(tokens)
    pair = ["a dog runs at night", "a dog sits in the park"]
    m = cider(pair[0].split(), [pair[1].split()], frequencies) / 10
    roots = [math.sqrt(1 + m), math.sqrt(1 - m)]
    found = measure_diversity({1: pair}, df=references)
    assert found.self_cider == pytest.approx(-math.log2(roots[0] / sum(roots)))
    assert (found.df, found.documents) == ("references passed as df", 3)


@given(CAPTIONS, st.randoms(use_true_random=False))
def test_diversity_lies_in_its_range_and_does_not_know_the_order(captions, random):
    df = {number: [word] for number, word in enumerate("abcdef")}
    found = measure_diversity({1: captions}, df=df)
    assert 0 <= found.self_cider <= 1 + 1e-9
    assert all(0 <= share <= 1 for share in found.distinct)
    shuffled = random.sample(captions, len(captions))
    again = measure_diversity({1: shuffled}, df=df)
    assert again.self_cider == pytest.approx(found.self_cider, abs=1e-6)
    assert again.distinct == pytest.approx(found.distinct)
    assert again.mbleu == pytest.approx(found.mbleu)


@pytest.mark.parametrize("samples", [{}, {1: ["a"]}, {1: "ab"}, {1: ["a", None]}])
def test_invalid_samples_are_refused(samples):
    with pytest.raises(LegendaError):
        measure_diversity(samples)
    with pytest.raises(LegendaError):
        score_oracle(samples or {1: ["a"], 2: ["a", "b"]}, {1: ["a"], 2: ["b"]})
