"""CIDEr and CIDEr-D by hand, by law, and against the reference programs."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.metrics.cider import DocumentFrequencies, cider, cider_d

CAPTION = st.lists(st.sampled_from("abcd"), max_size=7)
IMAGES = st.lists(st.tuples(CAPTION, st.lists(CAPTION, min_size=1, max_size=3)), min_size=2, max_size=4)


def score_all(images, metric):
    df = DocumentFrequencies.from_references(references for _, references in images)
    return [metric(candidate, references, df) for candidate, references in images]


# Two documents: every n-gram of the first image has the weight log 2, and cosines are those of counts.
@pytest.mark.parametrize(
    ("candidate", "reference", "plain", "clipped", "gap"),
    [
        ("a b", "a b", [1, 1, 0, 0], [1, 1, 0, 0], 0),
        ("a b c d e", "a b c d e", [1, 1, 1, 1], [1, 1, 1, 1], 0),
        ("a a a", "a", [1, 0, 0, 0], [1 / 3, 0, 0, 0], 2),
        ("a", "", [0, 0, 0, 0], [0, 0, 0, 0], 0),
        ("", "a", [0, 0, 0, 0], [0, 0, 0, 0], 0),
        ("a b", "a c", [1 / 2, 0, 0, 0], [1 / 2, 0, 0, 0], 0),
        ("a b", "a c d d", [1 / math.sqrt(12), 0, 0, 0], [1 / math.sqrt(12), 0, 0, 0], 2),
    ],
)
def test_cosines_by_hand(candidate, reference, plain, clipped, gap):
    captions = candidate.split(), [reference.split()], DocumentFrequencies.from_references([[], []])
    assert cider(*captions) == pytest.approx(10 * sum(plain) / 4)
    assert cider_d(*captions) == pytest.approx(10 * sum(clipped) / 4 * math.exp(-(gap**2) / 72))


@given(IMAGES, st.randoms(use_true_random=False))
def test_no_order_of_images_or_references_matters(images, random):
    for metric in (cider, cider_d):
        expected = score_all(images, metric)
        order = random.sample(range(len(images)), len(images))
        shuffled = [(images[i][0], random.sample(images[i][1], len(images[i][1]))) for i in order]
        assert score_all(shuffled, metric) == pytest.approx([expected[i] for i in order], abs=1e-9)


@given(IMAGES)
def test_scores_stay_in_range_and_clipping_never_helps(images):
    for plain, clipped in zip(score_all(images, cider), score_all(images, cider_d), strict=True):
        assert -1e-9 <= clipped <= plain + 1e-9 <= 10 + 2e-9


@pytest.mark.parametrize(
    ("name", "corpus_cider_d", "corpus_cider"),
    [
        ("corpus_df", 0.9447634331562172, 1.3659317050373927),
        ("scst_fixed_df", 1.1964837558523995, 1.6482639070760081),
        ("corpus_df_1", 0.0, 0.0),
        ("corpus_df_2", 3.0630242730385997, 3.1567516376815528),
    ],
)
def test_the_reference_programs_agree(shared, name, corpus_cider_d, corpus_cider):
    sets = json.loads((shared / "fixtures/ciderd_cases.json").read_text(encoding="utf-8"))["sets"]
    [case_set] = [entry for entry in sets if entry["name"] == name]
    cases = case_set["cases"]
    documents = case_set.get("df_documents") or [case["refs"] for case in cases]
    df = DocumentFrequencies.from_references([caption.split() for caption in group] for group in documents)
    for metric, key, corpus in ((cider_d, "cider_d", corpus_cider_d), (cider, "cider", corpus_cider)):
        scores = [
            metric(case["candidate"].split(), [caption.split() for caption in case["refs"]], df) for case in cases
        ]
        assert scores == pytest.approx([case[key] for case in cases], abs=1e-9)
        assert sum(scores) / len(cases) == pytest.approx(corpus, abs=1e-9)
