"""Small runs on scenes for the tests of training: started, stopped, and compared."""

import json
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

import pytest
import safetensors
import safetensors.torch
import torch

from legenda.data.captions import DataModule, ScenesData
from legenda.run_folder import STATE
from legenda.tasks import Captioning
from legenda.tasks import captioning as captioning_module
from legenda.tasks import objectives as caption_objectives_module
from legenda.tasks import self_critical as self_critical_module
from legenda.tasks.base import SelfCriticalConfig
from legenda.training import Callback, TrainingConfig, TrainResult, train
from legenda.training import launch as launch_module
from legenda.training import loop as loop_module
from legenda.training.checkpoint import read_history
from legenda.training.schedules import Plateau, StepDecay

SMALL = {"dim": 16, "num_heads": 2, "num_layers": 1, "ff_dim": 16, "geometry_dim": 8, "dropout": 0.2}
# 6 steps an epoch, 24 in all; states after the steps 4, 8, 16, 20, and before and after the validation of each epoch.
TRAINING = TrainingConfig(
    epochs=4,
    batch_size=4,
    captions_per_image=2,
    schedule=StepDecay(learning_rate=2e-3, warmup_steps=3, decay_after=(2,)),
    eval_beam_size=1,
    checkpoint_every=4,
)


SECOND = TrainingConfig(
    epochs=2,
    objective="self_critical",
    self_critical=SelfCriticalConfig(
        num_samples=3, max_length=8, rewards={"CIDEr-D": 1.0, "BLEU-4": 0.5}, baseline="greedy", xe_weight=0.1
    ),
    batch_size=4,
    captions_per_image=2,
    schedule=Plateau(learning_rate=1e-3, patience=0),
    optimizer="sgd",
    max_grad_norm=0.0,
    max_grad_value=0.1,
    weight_averaging="swa",
    eval_beam_size=1,
    checkpoint_every=4,
)


def open_scenes(train_scenes: int = 24) -> DataModule:
    return ScenesData(train=train_scenes, validation=6, test=3).open(sys.stderr.write)


DATA = open_scenes()


def run(
    folder: Path,
    training: TrainingConfig = TRAINING,
    data: DataModule = DATA,
    name: str = "ngsan",
    *,
    fine_tuning: TrainingConfig | None = None,
    init_from: Path | None = None,
    devices: int = 1,
    strategy: Literal["ddp", "fsdp"] = "ddp",
    callback: Callback | None = None,
    profile_steps: int = 0,
    task: Captioning | None = None,
    **options,
) -> TrainResult:
    return train(
        name,
        SMALL | options,
        task or Captioning(data),
        (training,) if fine_tuning is None else (training, fine_tuning),
        folder,
        sections={"name": "a test"},
        init_from=init_from,
        devices=devices,
        strategy=strategy,
        callback=callback,
        profile_steps=profile_steps,
    )


def outcome(folder: Path) -> dict[str, Any]:
    """All that a run leaves: every file but what it says of seconds."""
    with safetensors.safe_open(folder / STATE, framework="pt") as file:
        progress = json.loads(file.metadata()["progress"])
    state = safetensors.torch.load_file(folder / STATE)
    config = json.loads((folder / "config.json").read_text())
    return {
        "files": sorted(path.name for path in folder.iterdir() if path.suffix != ".partial"),
        "weights": (folder / "model.safetensors").read_bytes(),
        "config": {name: part for name, part in config.items() if name != "environment"},
        "vocabulary": (folder / "vocabulary.txt").read_text(),
        "state": {name: (tensor.dtype, tensor.numpy().tobytes()) for name, tensor in state.items()},
        "progress": {key: value for key, value in progress.items() if key != "seconds"},
        "history": [{k: v for k, v in record.items() if "seconds" not in k} for record in read_history(folder)],
    }


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    for part, value in one.items():
        assert value == other[part], f"{part} differs"


MODULES = {
    "cross_entropy": caption_objectives_module,
    "generate_captions": captioning_module,
    "sample": self_critical_module,
    "write_json": launch_module,
    "init_run_dir": launch_module,
}
"""Where a run calls functions that the loop does not call itself."""


class Killed(BaseException):
    """As sudden as a kill: nothing of ours catches it."""


def stop_and_resume(
    monkeypatch: pytest.MonkeyPatch, name: str, call: int, train: Callable[[], Any], *, done: bool
) -> None:
    """Stop a training in the `call`-th call of a function, after the function's work or before it, and train again.

    The second training starts with other random numbers, as another process would.
    """
    module = MODULES.get(name, loop_module)
    original: Callable[..., Any] = getattr(module, name)
    calls = 0

    def stopping(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not done:
            raise Killed
        result = original(*args, **kwargs)
        if calls == call:
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(module, name, stopping)
        with pytest.raises(Killed):
            train()
    torch.manual_seed(99)
    train()


def scored(*scores: float, attach: Callable[[Any], object] = lambda _: None) -> Captioning:
    """Return a task whose validations have these scores, one after the other; see `observed`."""
    following = iter(scores)

    class Scored(type(observed(attach))):
        @staticmethod
        def score(*_: object) -> dict[str, float | None]:
            return {"CIDEr-D": next(following)}

        def metric_names(self) -> Collection[str]:
            return ("CIDEr-D",)

    return Scored(DATA)


def observed(attach: Callable[[Any], object]) -> Captioning:
    """Return a task that gives every objective to `attach`, for hooks of PyTorch."""

    class Observed(Captioning):
        def objective(self, model: Any, config: Any) -> Any:
            objective = super().objective(model, config)
            attach(objective)
            return objective

    return Observed(DATA)
