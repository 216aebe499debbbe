"""The accuracy of answers, against the official program's own numbers and by hand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.errors import LegendaError
from legenda.metrics.vqa import Annotation, evaluate_vqa, normalize_answer, soft_targets, vqa_accuracy


@pytest.fixture(scope="module")
def official(shared) -> dict:
    return json.loads((shared / "fixtures/vqa_eval_cases.json").read_text())


def test_every_official_answer_is_normalised_alike(official):
    cases = official["normalisation"]
    assert len(cases) == 200
    assert [normalize_answer(case["answer"]) for case in cases] == [case["normalised"] for case in cases]


def test_every_official_accuracy_is_met(official):
    cases = official["accuracy_cases"]
    assert len(cases) == 50
    for case in cases:
        assert vqa_accuracy(case["prediction"], case["answers"]) == case["accuracy"], case
        assert soft_targets(case["answers"]) == case["mcan_soft_targets"], case


def test_the_official_means_are_met_from_every_form_of_annotations(official):
    cases, means = official["accuracy_cases"], official["aggregate"]
    predictions = {number: case["prediction"] for number, case in enumerate(cases)}
    entries = [
        {**case, "question_id": number, "answers": [{"answer": answer} for answer in case["answers"]]}
        for number, case in enumerate(cases)
    ]
    annotations = {
        str(number): Annotation(tuple(case["answers"]), case["question_type"], case["answer_type"])
        for number, case in enumerate(cases)
    }
    submitted = [{"question_id": number, "answer": answer} for number, answer in predictions.items()]
    for given_annotations in ({"annotations": entries}, entries, annotations, dict(enumerate(cases))):
        for given_predictions in (predictions, submitted):
            scores = evaluate_vqa(given_predictions, given_annotations)
            assert scores.overall == means["overall"]
            assert scores.answer_types == means["perAnswerType"]
            assert scores.question_types == means["perQuestionType"]
            assert scores.questions["1"] == 30.0


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("The two dogs", "2 dogs"),
        ("black/white", "black white"),  # a mark between letters becomes a space
        ("black/ white", "black white"),  # removed next to a space
        ("3,4 red-blue", "34 redblue"),  # a comma between digits makes every mark vanish
        ("." * 40 + "x", "." * 8 + "x"),  # the first 32 full stops only
        ("somebody'd", "somebodyd"),
        ("100% $5 #1 a: b", "100% $5 #1 a: b"),
    ],
)
def test_answers_are_normalised(text, normalised):
    assert normalize_answer(text) == normalised


@pytest.mark.parametrize(
    ("agreeing", "accuracy"),
    # n people who agree: n of them see n - 1 others, 10 - n see n; a third for each, at most one
    [(0, 0.0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1.0), (9, 1.0)],
)
def test_the_accuracy_is_a_mean_over_nine_others(agreeing, accuracy):
    people = ["red"] * agreeing + ["blue"] * (10 - agreeing)
    assert vqa_accuracy("red", people) == accuracy
    assert soft_targets(people).get("red", 0.0) == accuracy


def test_what_all_people_say_is_compared_as_it_is_written():
    assert vqa_accuracy("2", ["two"] * 10) == 0.0
    assert vqa_accuracy("Yes", ["yes"] * 10) == 0.0
    assert vqa_accuracy(" yes\n", ["\tyes"] * 10) == 1.0
    assert vqa_accuracy("Yes", ["yes"] * 9 + ["no"]) == 1.0
    assert vqa_accuracy("2", ["two"] * 9 + ["3"]) == 1.0
    assert vqa_accuracy("", ["the"] * 5 + ["yes"] * 5) == 1.0


@given(st.lists(st.sampled_from("abcdefg"), min_size=10, max_size=10).filter(lambda message: len(set(message)) > 1))
def test_what_is_learnt_is_the_accuracy_of_an_answer_of_ten_people(answers):
    for answer, share in soft_targets([f"x{answer}" for answer in answers]).items():
        assert vqa_accuracy(answer, [f"x{answer}" for answer in answers]) == share


ENTRY = {"question_id": 7, "answers": ["yes"] * 10, "question_type": "is the", "answer_type": "yes/no"}


@pytest.mark.parametrize(
    ("predictions", "annotations", "named"),
    [
        ({}, [ENTRY], "question 7"),
        ({7: "yes", 8: "no"}, [ENTRY], "question 8"),
        ({7: "yes"}, [ENTRY, ENTRY], "question 7"),
        ([{"question_id": 7}], [ENTRY], r"predictions\[0\]"),
        ({7: "yes"}, [{**ENTRY, "answers": [{"text": "yes"}]}], r"answers\[0\] must"),
        ({7: "yes"}, ["yes"], r"annotations\[0\] must"),
        ({}, [], "no annotated questions"),
    ],
)
def test_what_does_not_fit_is_named(predictions, annotations, named):
    with pytest.raises(LegendaError, match=named):
        evaluate_vqa(predictions, annotations)
