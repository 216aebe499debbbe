"""Settings open questions with the regions of their images, splits apart, targets as learned."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from default_data import IMAGES, WIDTH, write_features, write_questions
from legenda import Regions
from legenda.data.scenes import FEATURE_DIM
from legenda.errors import DataError
from legenda.extras.vqa.data import PEOPLE, DaquarData, Question, QuestionDataset, SceneQuestionsData, VqaData
from legenda.extras.vqa.task import AnswerObjective
from legenda.extras.vqa.text import AnswerVocabulary, QuestionVocabulary
from legenda.features.packed import write_store
from legenda.metrics.vqa import Annotation
from legenda.models.registry import build_model
from legenda.training import TrainingConfig


@pytest.fixture
def vqa(tmp_path) -> VqaData:
    """Questions for training and validation about eight images, one question of the test about another."""
    write_questions(tmp_path)
    asked = {"image_id": 30, "question": "where green", "question_id": 300}
    (tmp_path / "v2_OpenEnded_mscoco_test2015_questions.json").write_text(json.dumps({"questions": [asked]}))
    write_features(tmp_path / "coco.safetensors", list(map(str, IMAGES)))
    write_features(tmp_path / "test2015.safetensors", ["30"])
    stores = tmp_path / "coco.safetensors", tmp_path / "test2015.safetensors"
    return VqaData(questions=tmp_path, features=stores, validation="val")


def test_vqa_opens_with_all_words_and_frequent_answers(vqa):
    opened = vqa.open(lambda _: None)
    assert (len(opened.train), len(opened.validation)) == (24, 1)
    assert " ".join(opened.vocabulary.tokens) == "<pad> <unk> what is it where green"
    assert opened.answers.tokens == ("dog", "beach")  # 12 times each
    assert (opened.feature_dim, opened.has_boxes, opened.max_text_length, opened.vectors) == (WIDTH, True, 14, None)


def test_an_image_of_train_validates_by_default(vqa):
    opened = VqaData(questions=vqa.questions, features=vqa.features).open(lambda _: None)
    assert (len(opened.train), len(opened.validation)) == (21, 3)
    assert not {*opened.train.ids} & {*opened.validation.ids}


def test_vqa_trains_on_the_named_splits(vqa):
    assert vqa.train == "train"
    more = vqa.replace(train="train+val+vg").open(lambda _: None).train
    assert more.ids == (*map(str, range(24)), "100", "vg-200")
    first, *others = more.read(np.array([0, 24, 25])).features
    assert all(torch.equal(first, other) for other in others)  # of image 0


def test_a_test_split_has_questions_but_no_score(vqa):
    test = vqa.split("test")
    assert test.ids == ("300",)
    assert (test.missing_targets, vqa.split("val").missing_targets) == ("answers", None)
    with pytest.raises(DataError, match="answers"):
        test.score({"300": "cat"})
    with pytest.raises(DataError, match=r"'dev'.*test-dev"):
        vqa.split("dev")


def test_a_run_answers_a_split_whose_features_it_was_not_trained_with(vqa, tmp_path, run_command):
    coco, test = vqa.features
    run, server = tmp_path / "run", tmp_path / "server"
    small = "model.dim=16 model.num_heads=2 model.num_layers=1 model.ff_dim=16 model.word_dim=8 training.epochs=1"
    line = f"train vqa2.mcan_small --out {run} data.questions={vqa.questions} data.features={coco} {small}"
    assert run_command(line)[0] == 0
    code, _, err = run_command(f"evaluate {run} --split test --submission-dir {server} --algorithm mine")
    assert code == 2
    assert "image '30'" in err
    code, _, err = run_command(
        f"evaluate {run} --split test --features {test} --submission-dir {server} --algorithm mine"
    )
    assert code == 0, err
    answers = json.loads((server / "v2_OpenEnded_mscoco_test2015_mine_results.json").read_text())
    assert [entry["question_id"] for entry in answers] == [300]
    written = json.loads((run / "evaluation_test.json").read_text())
    assert [Path(path).name for path in written["data"]["features"]] == ["test2015.safetensors"]


def test_vqa_takes_given_answers_and_word_vectors(vqa, tmp_path):
    (tmp_path / "answers.json").write_text(json.dumps(["", "dog", "cat"]))
    (tmp_path / "glove.txt").write_text("what 1 2 3\n")
    given = {"answers": tmp_path / "answers.json", "vectors": tmp_path / "glove.txt"}
    opened = vqa.replace(**given, with_cls=True).open(lambda _: None)
    assert opened.answers.tokens == ("", "dog", "cat")
    assert opened.vocabulary.tokens[:4] == ("<pad>", "<unk>", "<cls>", "what")
    assert opened.vectors is not None
    assert opened.vectors.shape == (len(opened.vocabulary), 3)
    assert opened.vectors[opened.vocabulary.encode(["what"])].tolist() == [[1, 2, 3]]


def asked(number: int, text: str, answers: tuple[str, ...] | None) -> Question:
    return Question(str(number), "1", text, None if answers is None else Annotation(answers, "what", "other"))


def a_set(*questions: Question) -> QuestionDataset:
    """Questions about images of one region."""
    return QuestionDataset(questions, lambda rows: Regions(torch.zeros(len(rows), 1, 2)), "nowhere", "none")


def test_questions_become_padded_rows_and_soft_targets():
    split = a_set(
        asked(0, "What is blue?", ("blue", "Red", "red", "the red") + ("it",) * 6),
        asked(1, "is a red, red, red cat", ("x",) * 10),
    )
    vocabulary = QuestionVocabulary.build([["what", "is", "red"]])
    model = build_model("mcan", {"vocab_size": 5, "feature_dim": 2, "answers": 4, "max_text_length": 4})
    model.vocabulary, model.answers = vocabulary, AnswerVocabulary(("", "red", "it", "blue"))
    objective = AnswerObjective(model, TrainingConfig(), split)
    assert objective.tokens.tolist() == [[2, 3, 1, 0], [3, 1, 4, 4]]
    batch = objective.read(np.array([1, 0, 0]))
    assert batch["question"].dtype == torch.int64
    expected = [0.0, 0.9, 1.0, 0.3]
    assert batch["targets"].tolist() == [pytest.approx(row) for row in ([0.0] * 4, expected, expected)]


def test_daquar_shares_no_image_between_splits(shared, tmp_path):
    folder = shared / "data/daquar"
    images = [name for part in ("train", "test") for name in (folder / f"{part}_images_list.txt").read_text().split()]
    write_store(tmp_path / "f.safetensors", ((name, np.ones((1, 2)), None) for name in images), extractor="ones")
    data = DaquarData(questions=folder, features=(tmp_path / "f.safetensors",))
    splits = {name: data.split(name) for name in ("train", "val", "test")}
    assert {name: len(split) for name, split in splits.items()} == {"train": 6142, "val": 653, "test": 5673}
    images = [{question.image for question in split.examples} for split in splits.values()]
    assert [len(own) for own in images] == [715, 79, 653]
    assert len(set.union(*images)) == 715 + 79 + 653
    opened = data.open(lambda _: None)
    perfect = {name: annotations.answers[0] for name, annotations in opened.validation.annotations.items()}
    assert opened.validation.score(perfect)["accuracy"] == 100.0
    assert len(opened.train.read(np.array([5, 5, 6000]))) == 3


def test_scenes_are_questions_with_regions():
    data = SceneQuestionsData(train=30, validation=6, test=3)
    opened = data.open(lambda _: None)
    assert (len(opened.train), len(opened.validation), len(data.split("test"))) == (120, 24, 12)
    assert (opened.feature_dim, opened.has_boxes, opened.max_text_length) == (FEATURE_DIM, True, 10)
    assert len(set(opened.train.ids)) == 120
    regions = opened.train.read(np.array([0, 3, 4]))
    assert torch.equal(regions.features[0], regions.features[1])  # of one scene
    assert not torch.equal(regions.features[0], regions.features[2])
    annotations = opened.validation.annotations
    assert all(annotation.answers == (annotation.answers[0],) * PEOPLE for annotation in annotations.values())
    scores = opened.validation.score({name: annotation.answers[0] for name, annotation in annotations.items()})
    assert scores["near"] == scores["size"] == scores["stand"] == scores["accuracy"] == 100.0
    near = [name for name, annotation in annotations.items() if annotation.question_type == "near"]
    wrong = {name: "" if name in near else annotation.answers[0] for name, annotation in annotations.items()}
    assert opened.validation.score(wrong)["near"] == 0.0
    assert opened.validation.score(wrong)["size"] == 100.0
