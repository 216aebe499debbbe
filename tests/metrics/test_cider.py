"""CIDEr and CIDEr-D by hand, by law, and against the reference programs."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.errors import LegendaError
from legenda.metrics.cider import DocumentFrequencies, cider, cider_d, cider_scores
from legenda.metrics.ngrams import Corpus

CAPTION = st.lists(st.sampled_from("abcd"), max_size=7)
IMAGES = st.lists(st.tuples(CAPTION, st.lists(CAPTION, min_size=1, max_size=3)), min_size=2, max_size=4)


def score_all(images, metric):
    frequencies = DocumentFrequencies.from_references(references for _, references in images)
    return [metric(candidate, references, frequencies) for candidate, references in images]


def test_an_image_is_one_document():
    frequencies = DocumentFrequencies.from_references([[["a", "b"], ["a"]], [["a", "a"]], [["c"]]])
    assert frequencies.documents == 3
    occurrences = {"a": 2, "b": 1, "c": 1, "a b": 1, "a a": 1, "b a": 1, "unseen": 1, "a unseen a": 1}
    for ngram, documents in occurrences.items():
        assert frequencies.weight(tuple(ngram.split())) == pytest.approx(math.log(3 / documents))


def test_a_table_of_counts_is_a_source_of_frequencies():
    frequencies = DocumentFrequencies.from_counts({("a",): 4, ("b", "a"): 3, ("a", "a", "b", "c"): 2}, 12)
    counts = {"a": 4, "b a": 3, "a a b c": 2, "a a b": 1, "b": 1, "d": 1}
    for ngram, documents in counts.items():
        assert frequencies.weight(tuple(ngram.split())) == pytest.approx(math.log(12 / documents))
    with pytest.raises(LegendaError, match="more than 4 tokens"):
        DocumentFrequencies.from_counts({tuple("abcde"): 1}, 2)


@pytest.mark.parametrize("tokens", ["ab ba a", "12 21 1"])
def test_frequencies_survive_a_file(tmp_path, tokens):
    read = str if tokens.isalpha() else lambda caption: [ord(sign) for sign in caption]
    groups = [[list(read(caption))] for caption in tokens.split()]
    frequencies = DocumentFrequencies.from_references(groups)
    frequencies.save(tmp_path / "df.safetensors")
    again = DocumentFrequencies.load(tmp_path / "df.safetensors")
    assert (again.token_ids, again.documents) == (frequencies.token_ids, 3)
    for ngram in (groups[0][0], groups[1][0], groups[2][0], groups[0][0] * 2):
        assert again.weight(ngram) == frequencies.weight(ngram)


def test_what_is_no_file_of_frequencies_is_named(tmp_path):
    with pytest.raises(LegendaError, match=r"none\.safetensors does not exist"):
        DocumentFrequencies.load(tmp_path / "none.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"12345678")
    with pytest.raises(LegendaError, match=r"broken\.safetensors cannot be read"):
        DocumentFrequencies.load(tmp_path / "broken.safetensors")
    with pytest.raises(LegendaError, match="only strings and integers"):
        DocumentFrequencies.from_references([[[("a", "b")]]]).save(tmp_path / "pairs.safetensors")


# Two documents: every n-gram of the first image has the weight log 2, and cosines are those of counts.
FREQUENCIES = DocumentFrequencies.from_counts({}, 2)


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
    captions = candidate.split(), [reference.split()]
    assert cider(*captions, FREQUENCIES) == pytest.approx(10 * sum(plain) / 4)
    assert cider_d(*captions, FREQUENCIES) == pytest.approx(10 * sum(clipped) / 4 * math.exp(-(gap**2) / 72))


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


@given(CAPTION, st.lists(CAPTION, min_size=1, max_size=3))
def test_one_image_alone_scores_nothing(candidate, references):
    frequencies = DocumentFrequencies.from_references([references])
    assert cider_d(candidate, references, frequencies) == 0.0


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
    [cases] = [each["cases"] for each in sets if each["name"] == name]
    [documents] = [each.get("df_documents") for each in sets if each["name"] == name]
    frequencies = DocumentFrequencies.from_references(
        [caption.split() for caption in group] for group in documents or [case["refs"] for case in cases]
    )
    scores = {cider_d: [], cider: []}
    for case in cases:
        for metric, values in scores.items():
            references = [caption.split() for caption in case["refs"]]
            values.append(metric(case["candidate"].split(), references, frequencies))
    corpus = Corpus.from_tokens(
        [case["candidate"].split() for case in cases],
        [[caption.split() for caption in case["refs"]] for case in cases],
    )
    given = frequencies if documents else None  # without any, the references of all cases are the documents
    assert cider_scores(corpus, given).tolist() == pytest.approx([case["cider_d"] for case in cases], abs=1e-9)
    assert cider_scores(corpus, given, clipped=False).tolist() == pytest.approx([c["cider"] for c in cases], abs=1e-9)
    assert scores[cider_d] == pytest.approx([case["cider_d"] for case in cases], abs=1e-9)
    assert scores[cider] == pytest.approx([case["cider"] for case in cases], abs=1e-9)
    assert sum(scores[cider_d]) / len(cases) == pytest.approx(corpus_cider_d, abs=1e-9)
    assert sum(scores[cider]) / len(cases) == pytest.approx(corpus_cider, abs=1e-9)
