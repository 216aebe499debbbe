"""Questions as a task: the loss is the release's, eight questions are learnt by heart, and a run is whole."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from legenda import Regions
from legenda.extras.vqa.co_attention import CoAttentionDataModule
from legenda.extras.vqa.data import QuestionDataset, SceneQuestionsData
from legenda.extras.vqa.task import AnswerObjective, Vqa
from legenda.extras.vqa.text import AnswerVocabulary, QuestionVocabulary
from legenda.importers import load as load_released
from legenda.models.checkpoint import load_any
from legenda.papers import get_recipe
from legenda.tasks.base import regions_to_batch
from legenda.training import TrainingConfig, train

RELEASED = Path(__file__).parent / "data" / "mcan_a.safetensors"
SCENE_SIZES = get_recipe("grounding.scenes").model_overrides
SIZES = {**SCENE_SIZES, "dim": 32, "word_dim": 16, "num_layers": 1, "ff_dim": 32, "pool_dim": 16, "pooled_dim": 32}


@pytest.fixture(scope="module")
def data() -> CoAttentionDataModule:
    """Eight questions about two scenes, and twelve for validation."""
    return SceneQuestionsData(train=2, validation=3).open(lambda _: None)


@pytest.fixture(scope="module")
def task(data) -> Vqa:
    return Vqa(data)


def create(task):
    torch.manual_seed(0)
    return task.create("mcan", {**SIZES, "geometry": "query"})


def test_eight_questions_are_learnt_by_heart(task, data, one_thread):  # noqa: ARG001
    model = create(task)
    objective = task.objective(model, TrainingConfig(batch_size=8))
    positions = np.arange(len(data.train))
    assert len(positions) == 8
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    batch = objective.read(positions)
    for _ in range(60):
        optimizer.zero_grad()
        objective(batch)[0].backward()
        optimizer.step()
    predictions = task.predict(model.eval(), data.train, positions, {"beam_size": 1})
    assert list(predictions) == list(data.train.ids)
    assert task.score(predictions, data.train)["accuracy"] == 100.0


def released_objective(batch_size):
    """The released model and batch of the fixture as an objective whose `read` nobody calls."""
    tensors = load_file(RELEASED)
    weights = {name.removeprefix("param."): x for name, x in tensors.items() if name.startswith("param.")}
    model = load_released("mcan", {name: x.double() for name, x in weights.items()})
    split = QuestionDataset((), lambda _: Regions(torch.zeros(1, 1, 28)), "nothing", "none")
    objective = AnswerObjective(model, TrainingConfig(batch_size=batch_size), split)
    batch = {
        **regions_to_batch(Regions(tensors["in.img_feat"].double())),
        "question": tensors["in.ques_ix"],
        "targets": tensors["in.target"].double(),
    }
    return objective, batch, tensors["out.loss_bce_sum"][0]


def test_the_loss_is_the_sum_of_the_release():
    objective, batch, expected = released_objective(4)
    prepared = objective.prepare(np.arange(4), batch, 1)
    loss = prepared.finish(objective(batch, *prepared.inputs))
    torch.testing.assert_close(loss.sums[0], expected, atol=1e-10, rtol=0)
    assert (prepared.normalizers, objective.loss_weights) == ((1.0,), (1.0,))


def test_parts_of_a_step_add_up_to_the_sum():
    objective, batch, expected = released_objective(4)
    parts = [{name: x[rows] for name, x in batch.items()} for rows in (slice(0, 3), slice(3, 4))]
    counts = [objective.prepare(np.arange(len(part["mask"])), part, 1).normalizers[0] for part in parts]
    assert sum(counts) == pytest.approx(1.0)
    total = sum(objective(part)[0] for part in parts) / sum(counts)
    torch.testing.assert_close(total, expected, atol=1e-10, rtol=0)


def test_a_run_keeps_words_and_answers_and_is_continued_with_them(data, tmp_path, one_thread):  # noqa: ARG001
    task, training = Vqa(data), TrainingConfig(epochs=2, batch_size=4, monitor="accuracy", eval_every=1)
    trained = train("mcan", {**SIZES, "geometry": "query"}, task, (training,), tmp_path / "run", sections={})
    assert 0 <= trained.best <= 100
    model = load_any(tmp_path / "run")
    assert (model.vocabulary, model.answers) == (data.vocabulary, data.answers)
    positions = np.arange(len(data.validation))
    score = task.score(task.predict(model, data.validation, positions, {"beam_size": 1}), data.validation)
    assert score["accuracy"] == pytest.approx(trained.best)
    others = replace(
        data, vocabulary=QuestionVocabulary(("<pad>", "<unk>", "how")), answers=AnswerVocabulary(("perhaps",))
    )
    continued = Vqa(others).create("mcan", SIZES, tmp_path / "run")
    assert (continued.vocabulary, continued.answers) == (data.vocabulary, data.answers)
