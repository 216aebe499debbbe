"""evaluate() against pycocoevalcap, and what it refuses."""

import json

import numpy as np
import pytest

from legenda.errors import LegendaError
from legenda.metrics import METRICS, DocumentFrequencies, Metric, Scores, compare, intervals, register_metric
from legenda.metrics import evaluate as evaluate_all


def evaluate(predictions, references, **settings) -> Scores:
    """Evaluate without Java, which takes seconds to start."""
    return evaluate_all(predictions, references, **{"metrics": "fast", **settings})


REFERENCES = {
    7: ["A goat climbs a wall.", "the goat's on a wall"],
    8: ["Two boats at sea"],
    "nine": ["A kite over the beach", "a kite, high up"],
}
PREDICTIONS = {7: "a goat on a wall", 8: "two boats at sea", "nine": ""}
NAMES = ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D"]
PYCOCOEVALCAP = dict(zip(NAMES, ("Bleu_1", "Bleu_2", "Bleu_3", "Bleu_4", "ROUGE_L", "CIDEr"), strict=True))


@pytest.mark.parametrize(("prefix", "tokenized"), [("", False), ("tok_", True)])
def test_a_thousand_images_score_as_in_pycocoevalcap(shared, prefix, tokenized):
    fixture = json.loads((shared / "fixtures/metrics_fakecap.json").read_text(encoding="utf-8"))
    names = [*NAMES, "CIDEr"]
    scores = evaluate(fixture[f"{prefix}candidates"], fixture[f"{prefix}refs"], metrics=names, tokenized=tokenized)
    assert (scores.documents, scores.df) == (1000, "the references scored")
    assert scores["CIDEr"] == pytest.approx(fixture["corpus"]["CIDEr_plain"], abs=1e-9)
    for name, other in PYCOCOEVALCAP.items():
        assert scores[name] == pytest.approx(fixture["corpus"][other], abs=1e-9)
        computed = {image: values[name] for image, values in scores.per_image.items()}
        assert computed == pytest.approx(fixture["per_image"][other], abs=1e-9, rel=1e-9)


def test_captions_that_the_reference_program_treats_specially():
    scores = evaluate({1: "", 2: "..."}, {1: ["a kite"], 2: ["!"]})
    assert scores.per_image[1]["ROUGE-L"] == 0.0
    assert scores.per_image[2]["ROUGE-L"] == 1.0  # there, two empty captions share one empty token
    assert [scores.per_image[image]["CIDEr-D"] for image in (1, 2)] == [0.0, 0.0]
    # ROUGE-L sees [2 1/2, miles] against [2, 1/2, miles]; BLEU sees three words in both.
    scores = evaluate({1: "2\u00a01/2 miles", 2: "a b"}, {1: ["2 1/2 miles"], 2: ["c d"]}, tokenized=True)
    assert scores.per_image[1]["ROUGE-L"] == pytest.approx(2.44 * (1 / 2) * (1 / 3) / (1 / 3 + 1.44 / 2))
    assert scores.per_image[1]["BLEU-3"] == pytest.approx(1.0)
    # Captions of tokens stay as they are.
    assert evaluate({1: "A."}, {1: ["a"]}, tokenized=True)["BLEU-1"] < 1e-5
    assert evaluate({1: "A"}, {1: ["a"]})["BLEU-1"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("predictions", "references", "named"),
    [
        ({}, {}, "no predictions"),
        ({1: "a"}, {1: ["a"], 2: ["b"], 3: ["c"], 4: ["d"], 5: ["e"]}, "2, 3, 4"),
        ({1: "a", "x": "b"}, {1: ["a"]}, "'x'"),
        ({1: None}, {1: ["a"]}, "image 1 is NoneType"),
        ({1: "a"}, {1: []}, "image 1"),
        ({1: "a," * 1001}, {1: ["a"]}, "1,001 words"),
        ({1: "a"}, {1: ["a " * 1001]}, "1,001 words"),
    ],
)
def test_invalid_captions_are_named(predictions, references, named):
    with pytest.raises(LegendaError, match=named):
        evaluate(predictions, references)


def test_auto_gives_none_and_a_notice_for_what_is_missing(forget_plugins, monkeypatch, tmp_path):  # noqa: ARG001
    monkeypatch.setenv("LEGENDA_JAVA", str(tmp_path / "no_java"))
    METRICS.add("mine", Metric(lambda _: [0.25, None, 0.0], "known of two images"), __name__)
    with pytest.warns(UserWarning, match=r"^no METEOR: .*; no SPICE: ") as warned:
        scores = evaluate_all(PREDICTIONS, REFERENCES)
    assert [warning.filename for warning in warned] == [__file__]
    assert list(scores.corpus) == [*NAMES, "METEOR", "SPICE", "mine"]
    assert (scores["METEOR"], scores["mine"]) == (None, 0.125)
    assert [values["mine"] for values in scores.per_image.values()] == [0.25, None, 0.0]
    assert all(values["METEOR"] is None for values in scores.per_image.values())
    assert [notice[:9] for notice in scores.notices] == ["no METEOR", "no SPICE:"]
    with pytest.raises(LegendaError):
        evaluate(PREDICTIONS, REFERENCES, metrics=["BLEU-1", "METEOR"])


def test_a_metric_may_sum_counts_over_images(forget_plugins):  # noqa: ARG001
    """Its corpus score is that of the sums, whose interval and differences resample images."""
    per_word = Metric(
        lambda captions: [(caption.count("a"), len(caption.split())) for caption, _ in captions],
        "letters in a word",
        total=lambda sums: sums[..., 0] / np.maximum(sums[..., 1], 1),
        lower_is_better=True,
    )
    METRICS.add("letters", per_word, __name__)
    scores = evaluate(PREDICTIONS, REFERENCES, metrics="letters")
    assert scores.per_image == {7: {"letters": 4 / 5}, 8: {"letters": 3 / 4}, "nine": {"letters": 0.0}}
    assert scores["letters"] == 7 / 9
    interval = intervals(scores)["letters"]
    assert interval is not None
    assert interval.low < 7 / 9 < interval.high < 1
    difference = compare(scores, scores)["letters"]
    assert difference is not None
    assert (difference.difference, difference.p) == (0.0, 1.0)


@pytest.mark.parametrize("returned", [None, 3, [1.0], [None] * 3, ["x"] * 3, [float("nan")] * 3, [[1, 2]] * 3])
def test_what_a_registered_metric_may_not_return_is_said(forget_plugins, returned):  # noqa: ARG001
    register_metric("mine")(lambda *_: returned)
    with pytest.raises(LegendaError, match="the metric 'mine' must return a finite number for each of 3 images"):
        evaluate(PREDICTIONS, REFERENCES, metrics="mine")


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        ("CIDEr", ["CIDEr"]),
        (["CIDEr-D", "BLEU-4"], ["BLEU-4", "CIDEr-D"]),
        (["ROUGE-L", "BLEU"], ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L"]),
        (["CIDEr", "fast"], ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D", "CIDEr"]),
    ],
)
def test_metrics_are_chosen_by_name(metrics, names):
    scores = evaluate(PREDICTIONS, REFERENCES, metrics=metrics)
    assert list(scores.corpus) == names
    everything = evaluate(PREDICTIONS, REFERENCES, metrics=[*NAMES, "CIDEr"])
    assert scores.corpus == {name: everything[name] for name in names}
    assert (scores.documents is None) == (not {"CIDEr", "CIDEr-D"} & set(names))


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
    with pytest.raises(LegendaError, match="image 3"):
        evaluate(PREDICTIONS, REFERENCES, df={3: []})
    with pytest.raises(LegendaError, match="df holds no references"):
        evaluate(PREDICTIONS, REFERENCES, df={})


def test_line_breaks_are_spaces_and_other_control_characters_nothing():
    plain = evaluate({1: "a red kite", 2: "a dog"}, {1: ["the red kite"], 2: ["a big dog"]})
    for sign in "\n\r\v\f\x1c\x1d\x1e\u2028\u2029":
        broken = evaluate({1: f"a red{sign}kite", 2: "a dog"}, {1: [f"the{sign}red kite"], 2: ["a big dog"]})
        assert broken == plain
    assert evaluate({1: "a \x00red\x07 kite\x7f", 2: "a dog"}, {1: ["the \x1bred kite"], 2: ["a big dog"]}) == plain
