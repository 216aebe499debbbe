"""TensorBoard and W&B hear what the history holds, where they are installed."""

import sys
from types import SimpleNamespace

from legenda.training.checkpoint import open_loggers

RECORD = {"step": 20, "epoch": 2, "loss": 0.5, "validation": {"CIDEr-D": 0.25, "truth": None}}


def test_every_number_is_logged(tmp_path, monkeypatch):
    """By packages of our own in place of the real ones."""
    opened, numbers = {}, []

    def open_writer(folder, purge_step):
        opened.update(folder=folder, purge_step=purge_step)
        return SimpleNamespace(add_scalar=lambda *number: numbers.append(number), flush=lambda: numbers.append("flush"))

    def init(**options):
        opened.update(project=options["project"], resume=options["resume"])
        return SimpleNamespace(log=lambda values, step: numbers.append((values, step)))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=open_writer))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    (tmp_path / "tensorboard").mkdir()
    for log in open_loggers(tmp_path, 17):
        log(RECORD)
    tensorboard = {"folder": str(tmp_path / "tensorboard"), "purge_step": 18}
    assert opened == {**tensorboard, "project": "mine", "resume": "allow"}
    both = {"loss": 0.5, "validation/CIDEr-D": 0.25}
    assert numbers == [*((name, value, 20) for name, value in both.items()), "flush", (both, 20)]


def test_two_runs_of_one_process_are_two_runs_of_wandb(tmp_path, monkeypatch):
    """Unless it is asked to begin anew, wandb returns the run that it has begun before."""
    begun, numbers = [], []

    def init(id, reinit=None, **_):
        if not begun or reinit:
            begun.append(id)
        return SimpleNamespace(log=lambda *_, own=begun[-1], **__: numbers.append(own))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    for name in ("first", "second"):
        for log in open_loggers(tmp_path / name, 0):
            log(RECORD)
    assert len(set(numbers)) == 2
