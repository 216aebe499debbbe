"""TensorBoard and W&B hear what the history holds, where they are installed."""

import sys
from types import ModuleType

import pytest

from legenda.training.checkpoint import open_loggers

RECORD = {"step": 20, "epoch": 2, "loss": 0.5, "validation": {"CIDEr-D": 0.25, "truth": None}}


class Recorder:
    """Record the calls of a logging package."""

    def __init__(self) -> None:
        self.opened: dict[str, object] = {}
        self.metrics: list[object] = []


@pytest.fixture
def packages(monkeypatch) -> Recorder:
    """Packages of our own in place of the real ones."""
    recorder = Recorder()

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            recorder.opened |= {"folder": folder, "purge_step": purge_step}

        def add_scalar(self, name: str, value: float, step: int) -> None:
            recorder.metrics.append((name, value, step))

        def flush(self) -> None:
            recorder.metrics.append("flush")

    class Run:
        def log(self, values: dict[str, float], step: int) -> None:
            recorder.metrics.append((values, step))

    def init(**options: object) -> Run:
        recorder.opened |= options
        return Run()

    tensorboard, wandb = ModuleType("torch.utils.tensorboard"), ModuleType("wandb")
    tensorboard.__dict__["SummaryWriter"], wandb.__dict__["init"] = SummaryWriter, init
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", tensorboard)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    return recorder


def test_tensorboard_gets_every_number(packages, tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    (tell,) = open_loggers(tmp_path, 17)
    tell(RECORD)
    assert packages.opened == {"folder": str(tmp_path / "tensorboard"), "purge_step": 18}
    assert packages.metrics == [("loss", 0.5, 20), ("validation/CIDEr-D", 0.25, 20), "flush"]
