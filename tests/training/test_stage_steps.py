"""Steps and the end of a stage: parts of a step, means of weights, early stopping, disk errors, precision."""

from dataclasses import replace
from pathlib import Path
from threading import current_thread, main_thread

import numpy as np
import pytest
import safetensors.torch
import torch
from small_runs import DATA, TRAINING, assert_same, observed, outcome, run, scored, stop_and_resume

from legenda.errors import LegendaError
from legenda.run_folder import STATE
from legenda.training import Constant, is_finished
from legenda.training import loop as loop_module
from legenda.training.checkpoint import Progress, read_progress
from legenda.training.loop import stage_is_over
from legenda.training.schedules import Cosine, EpochwiseLR, Linear, StepDecay

pytestmark = pytest.mark.usefixtures("one_thread")


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """The last weights of a run."""
    state = safetensors.torch.load_file(folder / STATE)
    return {name: tensor for name, tensor in state.items() if name.startswith("model.")}


def test_parts_of_a_step_add_up_to_the_whole_step(tmp_path):
    training = TRAINING.replace(epochs=1, checkpoint_every=0, batch_size=5)
    run(tmp_path / "whole", training, dropout=0.0)
    run(tmp_path / "parts", training.replace(gradient_accumulation_steps=3), dropout=0.0)
    parts = weights_of(tmp_path / "parts")
    for name, tensor in weights_of(tmp_path / "whole").items():
        if not name.endswith((".key.bias", ".query.bias")):  # whose gradients are nothing but rounding
            torch.testing.assert_close(tensor, parts[name], atol=2e-5, rtol=1e-4)


def test_each_batch_is_read_once_and_ahead_of_its_step(tmp_path):
    reads = []

    def read(at):
        reads.append((len(at), current_thread() is main_thread()))
        return DATA.train.read(at)

    data = replace(DATA, train=replace(DATA.train, read=read))
    run(tmp_path / "run", TRAINING.replace(epochs=2, gradient_accumulation_steps=3, batch_size=5), data)
    parts = [2, 2, 1] * 4 + [2, 1, 1]  # of 24 images
    assert reads == [(examples, number < 3) for number, examples in enumerate(parts)] * 2


def test_the_mean_of_epochs_is_what_is_kept(tmp_path, monkeypatch):
    """Every epoch is made the best so far; what is kept last is then the mean of all ends of epochs."""
    ends = []
    original = loop_module.save_state

    def noted(folder, *args):
        original(folder, *args)
        ends.append(weights_of(folder))

    monkeypatch.setattr(loop_module, "save_state", noted)
    run(
        tmp_path / "run",
        TRAINING.replace(epochs=3, checkpoint_every=0, weight_averaging="swa", averaging_start_epoch=2),
        task=scored(0.1, 0.2, 0.3),
    )
    kept = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    ends = ends[1::2]  # the states after validation
    assert len(ends) == 3
    for name, tensor in kept.items():
        mean = (ends[1][f"model.{name}"] + ends[2][f"model.{name}"]) / 2
        torch.testing.assert_close(tensor, mean, atol=1e-6, rtol=0)


def test_training_ends_early_when_scores_no_longer_rise(tmp_path):
    task = scored(0.1, 0.3, 0.2, 0.3, 0.9)
    trained = run(tmp_path / "run", TRAINING.replace(epochs=9, early_stopping_patience=2), task=task)
    assert (trained.best, trained.best_epoch, read_progress(tmp_path / "run").epoch) == (0.3, 2, 4)
    assert is_finished(tmp_path / "run", "a test")


@pytest.mark.parametrize(
    ("config", "epochs"),
    [
        # one rate for each of three epochs; evaluations at the last one are those of the epochs 3, 4, 5 ...
        (TRAINING.replace(schedule=EpochwiseLR(learning_rates=(2e-3, 1e-3, 1e-4)), last_rate_patience=2), 4),
        (TRAINING.replace(schedule=EpochwiseLR(learning_rates=(1e-4, 1e-4)), last_rate_patience=2), 6),
        (TRAINING.replace(schedule=StepDecay(decay_after=(1, 4)), last_rate_patience=1), 5),
        (TRAINING.replace(schedule=Constant(), last_rate_patience=1), 6),
        # 6 steps an epoch
        (TRAINING.replace(schedule=Linear(total_steps=9)), 2),
        (TRAINING.replace(schedule=Cosine(total_steps=12, warmup_steps=1)), 2),
        (TRAINING.replace(schedule=Cosine(total_steps=12, warmup_steps=1, min_learning_rate=1e-5)), 6),
        (TRAINING.replace(schedule=Linear(total_steps=13), eval_every=2), 4),
    ],
)
def test_a_stage_is_over_when_its_schedule_has_ended_and_nothing_improves(config, epochs):
    """The first evaluation is the best."""
    config, ended = config.replace(epochs=6), []
    for epoch in range(1, 7):
        scores = [0.3, *[0.2] * (epoch // config.eval_every - 1)][: epoch // config.eval_every]
        progress = Progress(step=100 + 6 * epoch, epoch=10 + epoch, stage_step=100, stage_epoch=10, scores=scores)
        if stage_is_over(config, progress, 6):
            ended.append(epoch)
    assert ended[0] == epochs


def test_a_full_disk_is_reported_and_leaves_the_last_good_state(completed_run, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    original = safetensors.torch.save_file
    states = 0

    def full(tensors, path, metadata=None):
        nonlocal states
        states += "progress" in (metadata or {})
        if states == 3:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        original(tensors, path, metadata)

    with monkeypatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", full)
        with pytest.raises(LegendaError, match=r"state\.safetensors.*No space"):
            run(folder)
    assert read_progress(folder).step == 6
    assert not [path for path in folder.iterdir() if path.suffix == ".partial"]
    run(folder)
    assert_same(outcome(completed_run), outcome(folder))


def test_half_precision_is_resumed_with_its_scale(tmp_path, monkeypatch):
    training = TRAINING.replace(epochs=2, precision="fp16")
    run(tmp_path / "whole", training)
    scaler = read_progress(tmp_path / "whole").scaler
    assert scaler["scale"] >= 1
    assert scaler["_growth_tracker"] > 0
    stop_and_resume(monkeypatch, "save_state", 2, lambda: run(tmp_path / "run", training), done=True)
    assert_same(outcome(tmp_path / "whole"), outcome(tmp_path / "run"))


@pytest.mark.parametrize(
    "precisions",
    [
        pytest.param(("float32", "bf16"), marks=pytest.mark.slow),
        pytest.param(("bf16", "float32"), marks=pytest.mark.slow),
        ("bf16", "fp16"),
    ],
)
def test_each_stage_computes_in_its_own_precision(tmp_path, monkeypatch, precisions):
    """Also where the run was stopped in its second stage, which then ends as if it had not been."""
    dtypes = []

    def note(objective, _):
        if torch.is_grad_enabled():
            dtypes.append(objective.model.encoder.input(torch.zeros(1, objective.model.config.feature_dim)).dtype)

    first, second = (TRAINING.replace(epochs=1, precision=name) for name in precisions)
    task = observed(lambda objective: objective.register_forward_pre_hook(note))
    run(tmp_path / "whole", first, fine_tuning=second, task=task)
    kinds = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    assert dtypes == [kinds[name] for name in precisions for _ in range(6)]
    assert bool(read_progress(tmp_path / "whole").scaler) == (precisions[1] == "fp16")
    stop_and_resume(
        monkeypatch, "save_state", 5, lambda: run(tmp_path / "run", first, fine_tuning=second), done=True
    )  # after two steps of the second stage
    assert_same(outcome(tmp_path / "whole"), outcome(tmp_path / "run"))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_rounds_no_boxes(tmp_path, precision):
    """Training computes its geometry from the boxes that evaluation sees."""
    read: list[torch.Tensor] = []

    def attach(objective):
        objective.model.encoder.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].boxes))

    run(tmp_path / "run", TRAINING.replace(epochs=1, checkpoint_every=0, precision=precision), task=observed(attach))
    stored = {tuple(box) for box in DATA.train.read(np.arange(24)).boxes.flatten(0, 1).tolist()}
    assert {boxes.dtype for boxes in read} == {torch.float32}
    assert {tuple(box) for box in read[0].flatten(0, 1).tolist()} <= stored | {(0.0, 0.0, 0.0, 0.0)}
