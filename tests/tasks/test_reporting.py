"""What tasks tell a report: people who disagree, answers that are partly right, and scores of groups."""

import numpy as np
import pytest
import torch

from legenda import Regions, UserError
from legenda.datasets.questions import QuestionSet
from legenda.datasets.vqa import Question
from legenda.metrics.vqa import Annotation, evaluate_vqa
from legenda.tasks.reporting import share, shares_of_groups
from legenda.tasks.vqa import Vqa


class Sure:
    """A model that answers every question with "yes" and is nearly sure of it."""

    def parameters(self):
        return iter([torch.zeros(1)])

    def answer_with_probability(self, regions, questions):
        assert len(regions.features) == len(questions)
        return [("yes", 0.75)] * len(questions)


@pytest.fixture
def split() -> QuestionSet:
    """Three questions to which ten, one and none of ten people say yes."""
    told = [
        Annotation(("yes",) * 10, "is the", "yes/no"),
        Annotation(("no",) * 8 + ("maybe", "yes"), "is the", "yes/no"),
        Annotation(("two",) * 10, "how many", "number"),
    ]
    questions = tuple(Question(str(n), f"image{n}", f"question {n}?", one) for n, one in enumerate(told))
    return QuestionSet(questions, lambda positions: Regions(torch.zeros(len(positions), 1, 4)), "here", "nobody")


def test_people_who_disagree_are_counted(split):
    assert Vqa.show(split, 0).facts == (("question", "question 0?"), ("answer", "yes"))
    shown = Vqa.show(split, 1)
    assert shown.facts == (("question", "question 1?"), ("people", "no (8), maybe (1), yes (1)"))
    assert (shown.kind, shown.image, shown.box) == ("yes/no", "image1", None)


def test_an_answer_of_one_in_ten_is_wrong_and_says_how_far(split):
    predictions = dict.fromkeys(split.identities, "yes")
    judged = Vqa.judge(predictions, split)
    assert judged.ranks == {"0": 1.0, "1": 0.3, "2": 0.0}
    said = Vqa.say(Sure(), split, np.arange(3), predictions, judged.ranks)
    assert [(said[name].right, said[name].note, said[name].score) for name in said] == [
        (True, "", 0.75),
        (False, "30% right", 0.75),
        (False, "", 0.75),
    ]


def test_scores_are_those_of_the_official_evaluation(split):
    predictions = dict.fromkeys(split.identities, "yes")
    judged, official = Vqa.judge(predictions, split), evaluate_vqa(predictions, split.annotations)
    assert judged.scores["accuracy"].value == pytest.approx(official.overall / 100, abs=1e-4)
    (title,) = judged.groups
    assert title == "type of answer"
    parts = {name: (score.value, score.count) for name, score in judged.groups[title].items()}
    assert parts == {"yes/no": (pytest.approx(0.65), 2), "number": (0.0, 1)}


def test_questions_without_answers_are_refused(split):
    withheld = QuestionSet((Question("0", "image0", "why?", None),), split.read, "here", "nobody")
    with pytest.raises(UserError, match="come without answers"):
        Vqa.judge({"0": "yes"}, withheld)


def test_an_interval_is_that_of_the_group_alone():
    values = {str(n): float(n < 50) for n in range(100)}
    groups = {name: "few" if int(name) in (0, 99) else "" if int(name) == 1 else "many" for name in values}
    found = shares_of_groups(values, groups)
    assert {name: score.count for name, score in found.items()} == {"few": 2, "many": 97}
    assert found["few"].interval == (0.0, 1.0)
    low, high = found["many"].interval
    assert 0.35 < low < found["many"].value < high < 0.65
    assert share(dict.fromkeys("abc", 1.0)).interval == (1.0, 1.0)
