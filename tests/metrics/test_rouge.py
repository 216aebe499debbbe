"""ROUGE-L by hand and by law."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.metrics.rouge import rouge_l

CAPTION = st.lists(st.sampled_from("abcd"), min_size=1, max_size=12)


def f_score(precision, recall):
    return (1 + 1.44) * precision * recall / (recall + 1.44 * precision)


@pytest.mark.parametrize(
    ("candidate", "references", "precision", "recall"),
    [
        ("a b c d", ["a c d e f"], 3 / 4, 3 / 5),
        ("b a", ["a b"], 1 / 2, 1 / 2),
        ("a a b a", ["a a a"], 3 / 4, 1),
        ("a b c d e", ["a b c d x x x x x x", "a b"], 4 / 5, 1),  # the maxima of different references
    ],
)
def test_by_hand(candidate, references, precision, recall):
    score = rouge_l(candidate.split(), [reference.split() for reference in references])
    assert score == pytest.approx(f_score(precision, recall), abs=1e-12)


@given(CAPTION, CAPTION)
def test_the_subsequence_is_the_textbook_one(candidate, reference):
    table = [[0] * (len(reference) + 1) for _ in range(len(candidate) + 1)]
    for i, mine in enumerate(candidate, start=1):
        for j, other in enumerate(reference, start=1):
            table[i][j] = table[i - 1][j - 1] + 1 if mine == other else max(table[i - 1][j], table[i][j - 1])
    common = table[-1][-1]
    expected = f_score(common / len(candidate), common / len(reference)) if common else 0.0
    assert rouge_l(candidate, [reference]) == pytest.approx(expected, abs=1e-12)
