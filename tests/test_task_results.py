"""What tasks report: annotators who disagree, answers that are partly correct, and scores of groups."""

import numpy as np
import pytest
import torch

from legenda import Regions
from legenda.extras.vqa.data import Question, QuestionDataset
from legenda.extras.vqa.task import Vqa
from legenda.metrics.results import mean_with_ci, means_by_group
from legenda.metrics.vqa import Annotation, evaluate_vqa


class ConfidentModel:
    """Answer every question with "yes" and probability 0.75."""

    def parameters(self):
        return iter([torch.zeros(1)])

    def answer_with_probability(self, regions, questions):
        assert len(regions.features) == len(questions)
        return [("yes", 0.75)] * len(questions)


@pytest.fixture
def split() -> QuestionDataset:
    """Three questions to which ten, one and none of ten people say yes."""
    annotations = [
        Annotation(("yes",) * 10, "is the", "yes/no"),
        Annotation(("no",) * 8 + ("maybe", "yes"), "is the", "yes/no"),
        Annotation(("two",) * 10, "how many", "number"),
    ]
    questions = tuple(Question(str(n), f"image{n}", f"question {n}?", one) for n, one in enumerate(annotations))
    return QuestionDataset(questions, lambda positions: Regions(torch.zeros(len(positions), 1, 4)), "here", "nobody")


def test_an_answer_of_one_annotator_in_ten_is_wrong_with_its_accuracy_as_note(split):
    predictions = dict.fromkeys(split.ids, "yes")
    result = Vqa.score_with_intervals(predictions, split)
    assert result.per_example == {"0": 1.0, "1": 0.3, "2": 0.0}
    described = Vqa.describe_predictions(ConfidentModel(), split, np.arange(3), predictions, result.per_example)
    assert [(described[name].verdict, described[name].note, described[name].score) for name in described] == [
        (True, "", 0.75),
        (False, "30% correct", 0.75),
        (False, "", 0.75),
    ]


def test_scores_are_those_of_the_official_evaluation(split):
    predictions = dict.fromkeys(split.ids, "yes")
    result, official = Vqa.score_with_intervals(predictions, split), evaluate_vqa(predictions, split.annotations)
    assert result.scores["accuracy"].value == pytest.approx(official.overall / 100, abs=1e-4)
    (title,) = result.groups
    assert title == "type of answer"
    parts = {name: (score.value, score.count) for name, score in result.groups[title].items()}
    assert parts == {"yes/no": (pytest.approx(0.65), 2), "number": (0.0, 1)}


def test_the_interval_of_a_group_uses_its_examples_only():
    values = {str(n): float(n < 50) for n in range(100)}
    groups = {name: "few" if int(name) in (0, 99) else "" if int(name) == 1 else "many" for name in values}
    found = means_by_group(values, groups)
    assert {name: score.count for name, score in found.items()} == {"few": 2, "many": 97}
    assert found["few"].interval == (0.0, 1.0)
    low, high = found["many"].interval
    assert 0.35 < low < found["many"].value < high < 0.65
    assert mean_with_ci(dict.fromkeys("abc", 1.0)).interval == (1.0, 1.0)
