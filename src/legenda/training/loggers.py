"""Where measurements go besides the run's own files: TensorBoard and Weights & Biases, as far as they are installed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from legenda.training.history import numbers

Logger = Callable[[Mapping[str, Any]], None]
"""Hears every record of the history."""

EVENTS = "tensorboard"


def open_loggers(folder: Path, last_step: int) -> list[Logger]:
    """TensorBoard's event files in the run folder where tensorboard is installed; and W&B where wandb is and the
    environment names a project in WANDB_PROJECT.

    last_step: what was told of later steps, before a kill, is taken back.
    """
    return [logger for logger in (_tensorboard(folder, last_step), _wandb(folder)) if logger is not None]


def _tensorboard(folder: Path, last_step: int) -> Logger | None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    writer = SummaryWriter(str(folder / EVENTS), purge_step=last_step + 1)

    def told(record: Mapping[str, Any]) -> None:
        for name, value in numbers(record):
            writer.add_scalar(name, value, record["step"])
        writer.flush()

    return told


def _wandb(folder: Path) -> Logger | None:
    project = os.environ.get("WANDB_PROJECT")
    if not project:
        return None
    try:
        import wandb  # pyrefly: ignore
    except ImportError:
        return None
    identity = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    run = wandb.init(project=project, id=identity, name=folder.name, dir=str(folder), resume="allow")
    return lambda record: run.log(dict(numbers(record)), step=record["step"])
