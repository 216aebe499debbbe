"""evaluate() against pycocoevalcap, and what it refuses."""

import json
import warnings
from collections.abc import Callable
from statistics import fmean
from typing import Any

import pytest

from legenda.errors import LegendaError
from legenda.metrics import METRICS, WITHOUT_JAVA, DocumentFrequencies, MeteorScores, Scores, SpiceScores, evaluation
from legenda.metrics import evaluate as evaluate_all


def evaluate(predictions, references, **settings) -> Scores:
    """What needs no Java, which takes seconds to start."""
    return evaluate_all(predictions, references, **{"metrics": WITHOUT_JAVA, **settings})


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
    "CIDEr": "CIDEr_plain",
}


@pytest.mark.parametrize(
    ("predictions", "references", "tokenized"),
    [("candidates", "refs", False), ("tok_candidates", "tok_refs", True)],
)
def test_a_thousand_images_score_as_in_pycocoevalcap(shared, predictions, references, tokenized):
    fixture = json.loads((shared / "fixtures/metrics_fakecap.json").read_text(encoding="utf-8"))
    scores = evaluate(fixture[predictions], fixture[references], metrics=[*PYCOCOEVALCAP], tokenized=tokenized)
    assert (scores.documents, scores.df) == (1000, "the references scored")
    for name, other in PYCOCOEVALCAP.items():
        assert scores[name] == pytest.approx(fixture["corpus"][other], abs=1e-9)
        if name == "CIDEr":
            continue  # the fixture has no single images' plain CIDEr
        computed = {image: values[name] for image, values in scores.per_image.items()}
        assert computed == pytest.approx(fixture["per_image"][other], abs=1e-9, rel=1e-9)


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
        "df": "the references scored",
        "notices": [],
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
        ({1: "a"}, {1: []}, "image 1 has an empty list of references"),
        ({1: "a"}, {1: "a"}, "references of image 1 are str"),
        ({1: "a"}, {1: 5}, "references of image 1 are int"),
        ({1: "a"}, {1: ["a", 3]}, "reference of image 1 is int"),
    ],
)
def test_mistakes_are_named(predictions, references, message):
    with pytest.raises(LegendaError, match=message):
        evaluate(predictions, references)


@pytest.fixture
def programs(monkeypatch) -> Callable[..., None]:
    """Says what METEOR and SPICE answer: their scores, or the complaint with which they fail."""

    def prepare(**answers: str | MeteorScores | SpiceScores) -> None:
        for name, answer in answers.items():

            def program(*_: object, answer: Any = answer) -> Any:
                if isinstance(answer, str):
                    raise LegendaError(answer)
                return answer

            monkeypatch.setattr(evaluation, name, program)

    return prepare


def test_auto_leaves_out_what_is_missing_as_none_with_one_notice(programs):
    programs(meteor="install the extra", spice="fetch the jars")
    with pytest.warns(UserWarning, match="^no METEOR: install the extra; no SPICE: fetch the jars$") as warned:
        scores = evaluate_all(PREDICTIONS, REFERENCES)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert list(scores.corpus) == [*NAMES, "METEOR", "SPICE"]
    assert scores["METEOR"] is scores["SPICE"] is None
    assert all(values["METEOR"] is None for values in scores.per_image.values())
    assert scores.notices == ("no METEOR: install the extra", "no SPICE: fetch the jars")
    assert json.loads(scores.to_json())["corpus"]["METEOR"] is None


def test_auto_has_what_is_there(programs):
    meteor = MeteorScores(0.25, [0.5, 0.25, 0.0], [(1.0,), (2.0,), (3.0,)])
    programs(meteor=meteor, spice=SpiceScores(0.125, [0.25, None, 0.0], {}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = evaluate_all(PREDICTIONS, REFERENCES)
    assert (scores["METEOR"], scores["SPICE"], scores.notices) == (0.25, 0.125, ())
    assert [values["SPICE"] for values in scores.per_image.values()] == [0.25, None, 0.0]
    assert scores.counts["METEOR"] == meteor.counts


@pytest.mark.parametrize("name", ["METEOR", "SPICE"])
def test_a_missing_program_asked_for_by_name_is_a_mistake(programs, name):
    programs(meteor="install the extra", spice="install the extra")
    with pytest.raises(LegendaError, match=r"^install the extra$"):
        evaluate(PREDICTIONS, REFERENCES, metrics=["BLEU-1", name])


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        ("CIDEr", ["CIDEr"]),
        (["CIDEr-D", "BLEU-4"], ["BLEU-4", "CIDEr-D"]),
        (["ROUGE-L", "BLEU"], ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L"]),
        (WITHOUT_JAVA, NAMES),
    ],
)
def test_metrics_are_chosen_by_name(metrics, names):
    scores = evaluate(PREDICTIONS, REFERENCES, metrics=metrics)
    assert list(scores.corpus) == names
    everything = evaluate(PREDICTIONS, REFERENCES, metrics=[*NAMES, "CIDEr"])
    assert scores.corpus == {name: everything[name] for name in names}
    assert (scores.documents is None) == (not {"CIDEr", "CIDEr-D"} & set(names))


@pytest.mark.parametrize(
    ("metrics", "message"),
    [("CIDER", "no metric 'CIDER'; did you mean CIDEr?"), (["meteor"], "choose from BLEU, BLEU-1"), ([], "no metric")],
)
def test_unknown_metrics_are_named(metrics, message):
    with pytest.raises(LegendaError, match=message.replace("?", r"\?")):
        evaluate(PREDICTIONS, REFERENCES, metrics=metrics)
    assert set(NAMES) < set(METRICS)


def test_document_frequencies_may_come_from_elsewhere():
    others = {**REFERENCES, 10: ["A wall, a kite."], 11: ["the sea"]}
    own = evaluate(PREDICTIONS, REFERENCES, metrics="CIDEr-D")
    other = evaluate(PREDICTIONS, REFERENCES, metrics="CIDEr-D", df=others)
    assert (other.documents, other.df) == (5, "references passed as df")
    assert other["CIDEr-D"] != own["CIDEr-D"]
    counted = DocumentFrequencies.from_references([[["a", "wall", "a", "kite"]], [["the", "sea"]]])
    given = evaluate(PREDICTIONS, REFERENCES, metrics="CIDEr-D", df=counted)
    assert (given.documents, given.df) == (2, "document frequencies passed as df")
    assert evaluate(PREDICTIONS, REFERENCES, metrics="CIDEr-D", df=REFERENCES).corpus == own.corpus
    with pytest.raises(LegendaError, match="image 3 has an empty list of references"):
        evaluate(PREDICTIONS, REFERENCES, df={3: []})


@pytest.mark.parametrize("sign", list("\n\r\v\f\x1c\x1d\x1e\u2028\u2029"))
def test_a_line_break_in_a_caption_is_a_space(sign):
    plain = evaluate({1: "a red kite", 2: "a dog"}, {1: ["the red kite"], 2: ["a big dog"]})
    broken = evaluate({1: f"a red{sign}kite", 2: "a dog"}, {1: [f"the{sign}red kite"], 2: ["a big dog"]})
    assert broken == plain


def test_other_control_characters_are_nothing():
    plain = evaluate({1: "a red kite"}, {1: ["the red kite"]})
    assert evaluate({1: "a \x00red\x07 kite\x7f"}, {1: ["the \x1bred kite"]}) == plain
