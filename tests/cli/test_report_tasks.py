"""`legenda report` on runs of tasks that are not captioning, without training: what stands on each card, and scores."""

import json
from pathlib import Path

import numpy as np
import pytest

from command_results import report_data
from legenda.cli.main import main
from legenda.extras.grounding.data import SceneExpressionsData
from legenda.extras.translation.data import NumberWordsData
from legenda.extras.vqa.data import SceneQuestionsData

pytestmark = pytest.mark.usefixtures("one_thread")

QUESTIONS = SceneQuestionsData(train=6, validation=3, test=4)
EXPRESSIONS = SceneExpressionsData(train=6, validation=3, test=4)
NUMBERS = NumberWordsData(train=40, validation=3, test=6)


@pytest.fixture(scope="module")
def question_run(make_run) -> Path:
    return make_run("mcan", QUESTIONS, task="vqa")


def _evaluated(run: Path) -> dict:
    main(["evaluate", str(run), "--split", "test"])
    return json.loads((run / "evaluation_test.json").read_text())


def _groups(data: dict) -> dict[str, tuple[str, int]]:
    """The key and the number of examples of every group, by its label."""
    return {row["label"]: (row["key"], row["count"]) for parts in data["breakdowns"] for row in parts["rows"]}


def _expect_scores(data: dict, evaluated: dict) -> None:
    """The first run has the scores of `legenda evaluate`, each within its interval."""
    run, groups = data["runs"][0], _groups(data)
    for name, percent in evaluated["scores"].items():
        key = name if name in run["scores"] else groups[name][0]
        assert run["scores"][key] == pytest.approx(percent / 100, abs=1e-4), name
        low, high = run["intervals"][key]
        assert low <= run["scores"][key] + 1e-9 <= high + 2e-9


def test_questions_have_peoples_answer_and_those_of_the_models(question_run, make_run, tmp_path, capsys):
    other = make_run("mcan", QUESTIONS, "mcan1", {"geometry": "query"}, task="vqa", seed=1)
    data = report_data(question_run, other, "--split", "test", tmp_path / "report.html")
    assert "16 questions, " in capsys.readouterr().out
    evaluated = _evaluated(question_run)
    _expect_scores(data, evaluated)
    assert [parts["title"] for parts in data["breakdowns"]] == ["type of answer", "type of question"]
    assert [sum(row["count"] for row in parts["rows"]) for parts in data["breakdowns"]] == [16, 16]
    assert [list(run["differences"]) for run in data["runs"]] == [[], ["accuracy"]]
    assert (data["noun"], data["scoreName"], data["verdicts"]) == ("questions", "probability", ["correct", "wrong"])

    split = QUESTIONS.split("test")
    assert [example["id"] for example in data["examples"]] == list(split.ids)
    for example, question in zip(data["examples"], split.examples, strict=True):
        answer = split.annotations[question.id].answers[0]
        assert example["facts"] == [["question", question.text], ["answer", answer]]
        assert example["kind"] == split.annotations[question.id].question_type
        assert example["image"].startswith("data:image/png")
        for run in data["runs"]:
            prediction = example["captions"][run["name"]]
            assert len(prediction["words"]) == 1
            assert 0 <= prediction["score"] <= 1
            assert prediction["verdict"] == (prediction["words"][0] == answer)
        assert example["captions"]["mcan"]["words"] == [evaluated["predictions"][question.id]]


def test_expressions_have_the_true_box_and_those_of_the_models(make_run, tmp_path):
    run = make_run("mcan_grounding", EXPRESSIONS, task="grounding")
    data = report_data(run, "--split", "test", "--num-images", 5, tmp_path / "report.html")
    evaluated = _evaluated(run)
    _expect_scores(data, evaluated)
    assert any(note.startswith("5 of 12 expressions are shown") for note in data["footnotes"])
    split = EXPRESSIONS.split("test")
    for example in data["examples"]:
        meant = split.examples[split.ids.index(example["id"])]
        prediction = example["captions"]["mcan_grounding"]
        assert example["facts"] == [["expression", " ".join(meant.tokens)]]
        np.testing.assert_allclose(np.array(example["box"]) * 320, meant.box, atol=0.1)
        predicted = np.array(evaluated["predictions"][meant.id])
        np.testing.assert_allclose(np.array(prediction["box"]) * 320, predicted, atol=0.1)
        assert prediction["verdict"] == (prediction["score"] >= 0.5)
        assert prediction["words"] == []


def test_sentences_have_their_references_and_no_picture(make_run, tmp_path):
    pytest.importorskip("sacrebleu", reason="needs sacrebleu")
    runs = [make_run("translator", NUMBERS, norm, {"norm": norm}, task="translation") for norm in ("none", "in")]
    data = report_data(*runs, "--split", "test", "--beam-size", 1, tmp_path / "report.html")
    assert [column["key"] for column in data["columns"]] == ["BLEU", "chrF", "exact"]
    assert [column["percent"] for column in data["columns"]] == [False, False, True]
    assert [list(run["differences"]) for run in data["runs"]] == [[], ["exact"]]  # the others are no means
    assert sum("sacrebleu's signature" in note for note in data["footnotes"]) == 2
    split = NUMBERS.split("test")
    for example, sentence, references in zip(data["examples"], split.sentences, split.references, strict=True):
        assert example["image"] is None
        assert example["facts"] == [["source", sentence], ["reference", references[0]]]
        for prediction in example["captions"].values():
            assert prediction["verdict"] is None
            assert 0 <= prediction["score"] <= 100
    for run in data["runs"]:
        for name, (low, high) in run["intervals"].items():
            assert low <= run["scores"][name] <= high
