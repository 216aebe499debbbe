"""The rewards on token ids against the released codes' values and against the scores of text."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.errors import LegendaError
from legenda.metrics.bleu import bleu
from legenda.metrics.cider import DocumentFrequencies, cider_d
from legenda.metrics.rewards import BleuReward, CiderD

CAPTION = st.lists(st.integers(1, 4), max_size=7)
IMAGES = st.lists(st.tuples(CAPTION, st.lists(CAPTION, min_size=1, max_size=3)), min_size=2, max_size=4)
REFERENCES = {"cat": [[1, 2, 3, 0], [1, 2, 0]], 7: [[4, 2, 3, 5, 0]], "sea": [[6], [6, 6, 1, 0]]}
SAMPLES = np.array([[[1, 2, 3, 0, 9], [1, 2, 0, 3, 3]], [[4, 2, 0, 0, 0], [8, 8, 8, 8, 8]]])


def pad(captions):
    """Return captions as samples (captions, 1, T) that end in 0."""
    rows = np.zeros((len(captions), 1, max(map(len, captions), default=0) + 1), int)
    for row, caption in zip(rows, captions, strict=True):
        row[0, : len(caption)] = caption
    return rows


def test_the_reward_of_x_lan(shared):
    case = json.loads((shared / "fixtures/xlan_ciderd.json").read_text(encoding="utf-8"))
    samples = np.array(case["hypothesis_rows"])[:, np.newaxis]
    rewards = CiderD(case["references"])(case["hypothesis_image"], samples)
    assert rewards[:, 0].tolist() == pytest.approx(case["rewards"], abs=1e-9)


@pytest.mark.parametrize("name", ["corpus_df", "scst_fixed_df", "corpus_df_1", "corpus_df_2"])
def test_the_reference_program(shared, name):
    sets = json.loads((shared / "fixtures/ciderd_cases.json").read_text(encoding="utf-8"))["sets"]
    [case_set] = [entry for entry in sets if entry["name"] == name]
    cases, numbers = case_set["cases"], {}

    def ids(caption):
        return [numbers.setdefault(word, len(numbers) + 1) for word in caption.split()]

    references = [[ids(caption) for caption in case["refs"]] for case in cases]
    documents = [[ids(caption) for caption in group] for group in case_set.get("df_documents") or ()]
    df = DocumentFrequencies.from_references(documents) if documents else "references"
    # An end id that never occurs: these candidates are whole, whatever they hold.
    rewards = CiderD(references, eos="drop", df=df)(range(len(cases)), pad([ids(case["candidate"]) for case in cases]))
    assert rewards[:, 0].tolist() == pytest.approx([case["cider_d"] for case in cases], abs=1e-9)


@given(IMAGES)
def test_the_rewards_are_the_scores_of_text(images):
    candidates, groups = zip(*images, strict=True)
    df = DocumentFrequencies.from_references(groups)
    rewards = CiderD(groups, eos="drop")(range(len(images)), pad(candidates))[:, 0]
    assert rewards.tolist() == [cider_d(candidate, group, df) for candidate, group in images]
    rewards = BleuReward(groups, eos="drop")(range(len(images)), pad(candidates))[:, 0]
    assert rewards.tolist() == [scores[3] for scores in bleu(candidates, groups)[1]]


WHOLE = [[1, 2, 3, 0], [1, 2, 0]], [[4, 2, 3, 5, 0]], [[6, 0], [6, 6, 1, 0]]
CUT = [[1, 2, 3], [1, 2, 0]], [[4, 2, 3]], [[6, 0], [6, 6, 1]]
GIVEN = [[1, 2, 3, 0], [1, 2, 0]], [[4, 2, 3, 5, 0]], [[6], [6, 6, 1, 0]]
WORDS = [[1, 2, 3], [1, 2]], [[4, 2, 3, 5]], [[6], [6, 6, 1]]


@pytest.mark.parametrize(
    ("options", "references", "documents", "ends"),
    [
        ({}, GIVEN, GIVEN, [0]),
        ({"eos": "append"}, WHOLE, WHOLE, [0]),
        ({"eos": "append", "max_reference_length": 3}, CUT, WHOLE, [0]),  # AoANet, which truncates at 16
        ({"eos": "drop"}, WORDS, WORDS, []),
        ({"eos": "drop", "df": "captions"}, WORDS, [[caption] for group in WORDS for caption in group], []),  # MD-SAN
    ],
)
def test_the_conventions_of_the_released_codes(options, references, documents, ends):
    rewards = CiderD(REFERENCES, **options)(["cat", 7], SAMPLES)
    samples = [[1, 2, 3, *ends], [1, 2, *ends], [4, 2, *ends], [8] * 5]
    df = DocumentFrequencies.from_references(documents)
    images = [references[0], references[0], references[1], references[1]]
    expected = [cider_d(sample, group, df) for sample, group in zip(samples, images, strict=True)]
    assert rewards.ravel().tolist() == pytest.approx(expected, abs=1e-9)


def test_images_in_any_order_and_more_than_once():
    cider = CiderD(REFERENCES)
    cat, seven = cider(["cat", 7], SAMPLES)
    assert np.array_equal(cider([7, "cat", 7], SAMPLES[[1, 0, 1]]), [seven, cat, seven])
    assert np.array_equal(CiderD(list(REFERENCES.values()))(np.array([0, 1]), SAMPLES), [cat, seven])


@pytest.mark.parametrize(
    ("images", "samples"),
    [
        (["dog"], SAMPLES[:1]),
        (["cat"], SAMPLES),
        (["cat"], SAMPLES[0]),
        (["cat"], SAMPLES[:1] / 2),
        (["cat"], [[[1, -1, 0]]]),
    ],
)
def test_invalid_calls_are_refused(images, samples):
    with pytest.raises(LegendaError):
        CiderD(REFERENCES)(images, samples)
