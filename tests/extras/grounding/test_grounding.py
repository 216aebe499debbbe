"""Grounding as a task: targets, loss and boxes are the release's, and eight expressions are learnt by heart."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from legenda import Regions
from legenda.extras.grounding.data import Expression, ExpressionDataset, SceneExpressionsData
from legenda.extras.grounding.task import BoxObjective, Grounding
from legenda.extras.vqa.co_attention import CoAttentionDataModule
from legenda.extras.vqa.text import QuestionVocabulary
from legenda.importers import load as load_released
from legenda.papers import get_recipe
from legenda.tasks.base import regions_to_batch
from legenda.training import TrainingConfig

RELEASED = Path(__file__).parents[1] / "vqa" / "data" / "mcan_vg.safetensors"
SCENE_SIZES = get_recipe("grounding.scenes").model_overrides
SIZES = {**SCENE_SIZES, "dim": 32, "word_dim": 16, "num_layers": 1, "ff_dim": 32, "pool_dim": 16, "pooled_dim": 32}


@pytest.fixture(scope="module")
def data() -> CoAttentionDataModule:
    """The expressions about a few scenes, cut to eight."""
    opened = SceneExpressionsData(train=4, validation=3).open(lambda _: None)
    return replace(opened, train=replace(opened.train, examples=opened.train.examples[:8]))


@pytest.fixture(scope="module")
def task(data) -> Grounding:
    return Grounding(data)


def create(task, **options):
    torch.manual_seed(0)
    return task.create("mcan_grounding", {**SIZES, "geometry": "query", **options})


@pytest.fixture(scope="module")
def released():
    return load_file(RELEASED)


def released_model(released, dtype=torch.float64):
    weights = {name.removeprefix("param."): x.to(dtype) for name, x in released.items() if name.startswith("param.")}
    model = load_released("mcan", weights)
    words = tuple(f"w{number}" for number in range(2, model.config.vocab_size))
    model.vocabulary = QuestionVocabulary(("<pad>", "<unk>", *words))
    return model


def released_split(released, dtype=torch.float64) -> ExpressionDataset:
    """The fixture's pictures with the words of its expressions."""
    sizes = released["in.image_wh"]
    boxes = (released["in.boxes_xyxy"] / sizes.repeat(1, 2).unsqueeze(1)).to(dtype)
    regions = Regions(released["in.img_feat"].to(dtype), boxes)
    expressions = []
    for row, (x, y, width, height) in enumerate(released["in.gt_xywh"].tolist()):
        tokens = tuple("<unk>" if number == 1 else f"w{number}" for number in released["in.ques_ix"][row] if number)
        box = (x, y, x + width, y + height)
        size = tuple(int(side) for side in sizes[row])
        expressions.append(Expression(str(row), str(row), tuple(str(t) for t in tokens), (box,), size, ""))
    return ExpressionDataset(
        tuple(expressions), lambda positions: regions[torch.from_numpy(positions)], "fixture", "none"
    )


def test_the_loss_is_that_of_the_release(released):
    objective = BoxObjective(released_model(released), TrainingConfig(), released_split(released))
    batch = {
        **regions_to_batch(Regions(released["in.img_feat"].double())),
        "expression": released["in.ques_ix"],
        "scores": released["target.score"],
        "deltas": released["target.delta_norm"],
    }
    prepared = objective.prepare(np.arange(5), batch, 1)
    assert prepared.normalizers == (
        released["target.sample_mask"].sum().item(),
        released["target.box_mask"].sum().item(),
    )
    loss = prepared.finish(objective(batch, *prepared.inputs))
    rank, regression = (part / count for part, count in zip(loss.sums, prepared.normalizers, strict=True))
    torch.testing.assert_close(rank, released["out.loss_rank"][0], atol=1e-12, rtol=0)
    torch.testing.assert_close(regression, released["out.loss_reg"][0], atol=1e-12, rtol=0)
    total = sum(share * part for share, part in zip(objective.loss_weights, (rank, regression), strict=True))
    torch.testing.assert_close(total, released["out.loss"][0], atol=1e-12, rtol=0)


def test_targets_are_those_of_the_release(released):
    """From boxes in parts of the picture and in single precision, as stores keep them."""
    objective = BoxObjective(
        released_model(released, torch.float32), TrainingConfig(), released_split(released, torch.float32)
    )
    batch = objective.read(np.arange(5))
    assert torch.equal(batch["expression"], released["in.ques_ix"][:, : batch["expression"].shape[1]])
    near = released["target.box_mask"] > 0
    torch.testing.assert_close(batch["scores"].double(), released["target.score"], atol=1e-5, rtol=0)
    torch.testing.assert_close(batch["deltas"].double()[near], released["target.delta_norm"][near], atol=1e-4, rtol=0)
    assert torch.equal(batch["scores"] > 0, near)


def test_predicted_boxes_and_their_accuracy_are_those_of_the_release(released):
    model, split = released_model(released), released_split(released)
    found = Grounding.predict(model, split, np.arange(5), {"beam_size": 1})
    best = released["out.boxes_clipped"][torch.arange(5), released["out.best"]]
    torch.testing.assert_close(torch.tensor(list(found.values())), best.float(), atol=1e-3, rtol=0)
    assert Grounding.score(found, split)["accuracy"] == pytest.approx(60.0)


def test_padded_regions_teach_nothing(task, data):
    """They lie on the true box here, and the loss and its gradients are those of a batch without them."""
    model = create(task, geometry="none")
    split = data.train
    regions = split.read(np.arange(2))
    truth = torch.from_numpy(split.boxes[:2] / np.tile(split.sizes[:2], 2)).unsqueeze(1)
    longer = Regions(
        torch.cat([regions.features, torch.ones_like(regions.features[:, :1])], dim=1),
        torch.cat([regions.boxes, truth], dim=1),
        torch.cat([regions.mask_or_ones, torch.zeros(2, 1, dtype=torch.bool)], dim=1),
    )
    found = []
    for own in (regions, longer):
        objective = BoxObjective(model, TrainingConfig(), replace(split, read=lambda _, own=own: own))
        model.zero_grad()
        parts = objective(objective.read(np.arange(2)))
        sum(parts).backward()
        found.append((*parts, model.backbone.input.weight.grad.clone()))
    for short, padded in zip(*found, strict=True):
        assert short.isfinite().all()
        torch.testing.assert_close(padded, short, atol=1e-5, rtol=1e-4)


def test_eight_expressions_are_learnt_by_heart(task, data, one_thread):  # noqa: ARG001
    model = create(task)
    objective = task.objective(model, TrainingConfig(batch_size=8))
    positions = np.arange(len(data.train))
    assert len(positions) == 8
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    batch = objective.read(positions)
    counts = objective.prepare(positions, batch, 1).normalizers
    assert counts[0] == 8
    for _ in range(100):
        optimizer.zero_grad()
        divergence, apart = objective(batch)
        (divergence / counts[0] + apart / counts[1] / 2).backward()
        optimizer.step()
    predictions = task.predict(model.eval(), data.train, positions, {"beam_size": 1})
    assert list(predictions) == list(data.train.ids)
    assert task.score(predictions, data.train)["accuracy"] == 100.0
