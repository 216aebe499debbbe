"""evaluate() against pycocoevalcap, and what it refuses."""

import json
import subprocess
import sys
from statistics import fmean

import pytest

from legenda.errors import UserError
from legenda.metrics import evaluate

REFERENCES = {
    7: ["A goat climbs a wall.", "the goat's on a wall"],
    8: ["Two boats at sea"],
    "nine": ["A kite over the beach", "a kite, high up"],
}
PREDICTIONS = {7: "a goat on a wall", 8: "two boats at sea", "nine": ""}
NAMES = ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D"]
PYCOCOEVALCAP = {
    "BLEU-1": "Bleu_1",
    "BLEU-2": "Bleu_2",
    "BLEU-3": "Bleu_3",
    "BLEU-4": "Bleu_4",
    "ROUGE-L": "ROUGE_L",
    "CIDEr-D": "CIDEr",
}


@pytest.mark.parametrize(
    ("predictions", "references", "tokenized"),
    [("candidates", "refs", False), ("tok_candidates", "tok_refs", True)],
)
def test_a_thousand_images_score_as_in_pycocoevalcap(shared, predictions, references, tokenized):
    fixture = json.loads((shared / "fixtures/metrics_fakecap.json").read_text(encoding="utf-8"))
    scores = evaluate(fixture[predictions], fixture[references], tokenized=tokenized)
    assert scores.documents == 1000
    for name, theirs in PYCOCOEVALCAP.items():
        assert scores[name] == pytest.approx(fixture["corpus"][theirs], abs=1e-9)
        ours = {image: values[name] for image, values in scores.per_image.items()}
        assert ours == pytest.approx(fixture["per_image"][theirs], abs=1e-9, rel=1e-9)


def test_the_shape_of_the_scores():
    scores = evaluate(PREDICTIONS, REFERENCES)
    assert list(scores.corpus) == NAMES
    assert list(scores.per_image) == [7, 8, "nine"]
    assert all(list(values) == NAMES for values in scores.per_image.values())
    assert scores["ROUGE-L"] == scores.corpus["ROUGE-L"] == fmean(v["ROUGE-L"] for v in scores.per_image.values())
    assert scores.per_image[8] == pytest.approx(dict.fromkeys(NAMES[:5], 1.0) | {"CIDEr-D": 10.0})
    assert json.loads(scores.to_json()) == {
        "corpus": scores.corpus,
        "documents": 3,
        "per_image": {str(image): values for image, values in scores.per_image.items()},
    }


def test_an_empty_caption_scores_as_in_the_reference():
    scores = evaluate({1: "", 2: "..."}, {1: ["a kite"], 2: ["!"]})
    assert scores.per_image[1]["ROUGE-L"] == 0.0
    assert scores.per_image[2]["ROUGE-L"] == 1.0  # there, two empty captions share one empty token
    assert [scores.per_image[image]["CIDEr-D"] for image in (1, 2)] == [0.0, 0.0]
    assert scores["BLEU-1"] == pytest.approx(0.0, abs=1e-5)


def test_a_mixed_fraction_is_one_word_for_rouge_and_two_for_the_others():
    # ROUGE-L sees [2 1/2, miles] against [2, 1/2, miles]; BLEU sees three words in both.
    scores = evaluate({1: "2\u00a01/2 miles", 2: "a b"}, {1: ["2 1/2 miles"], 2: ["c d"]}, tokenized=True)
    assert scores.per_image[1]["ROUGE-L"] == pytest.approx(2.44 * (1 / 2) * (1 / 3) / (1 / 3 + 1.44 / 2))
    assert scores.per_image[1]["BLEU-3"] == pytest.approx(1.0)


def test_tokenized_captions_are_left_as_they_are():
    assert evaluate({1: "A."}, {1: ["a"]}, tokenized=True)["BLEU-1"] < 1e-5
    assert evaluate({1: "A"}, {1: ["a"]})["BLEU-1"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("predictions", "references", "message"),
    [
        ({}, {}, "no predictions"),
        ({1: "a"}, {1: ["a"], 2: ["b"], 3: ["c"], 4: ["d"], 5: ["e"]}, r"lack 4 image\(s\): 2, 3, 4 and 1 more"),
        ({1: "a", "x": "b"}, {1: ["a"]}, r"no references for 1 image\(s\): 'x'"),
        ({"1": "a"}, {1: ["a"]}, r"lack 1 image\(s\): 1,"),
        ({1: ["a"]}, {1: ["a"]}, "prediction for image 1 is list"),
        ({1: None}, {1: ["a"]}, "prediction for image 1 is NoneType"),
        ({1: "a"}, {1: []}, "Image 1 has an empty list of references"),
        ({1: "a"}, {1: "a"}, "references of image 1 are str"),
        ({1: "a"}, {1: 5}, "references of image 1 are int"),
        ({1: "a"}, {1: ["a", 3]}, "reference of image 1 is int"),
    ],
)
def test_mistakes_are_named(predictions, references, message):
    with pytest.raises(UserError, match=message):
        evaluate(predictions, references)


def test_import_is_light():
    code = "import sys, legenda.metrics; print([m for m in ('torch', 'numpy', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
