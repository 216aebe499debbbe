"""Loggers of training metrics besides the run's files: TensorBoard and Weights & Biases, where installed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from legenda.training.history import flatten_record

Logger = Callable[[Mapping[str, Any]], None]
"""Called with every record of the history."""

TENSORBOARD_FOLDER = "tensorboard"


def open_loggers(folder: Path, last_step: int) -> list[Logger]:
    """Return a TensorBoard logger where tensorboard is installed, and a W&B logger where wandb is and the environment
    variable WANDB_PROJECT names a project.

    last_step: what was logged of later steps, before a kill, is discarded.
    """
    return [logger for logger in (_tensorboard(folder, last_step), _wandb(folder)) if logger is not None]


def _tensorboard(folder: Path, last_step: int) -> Logger | None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    writer = SummaryWriter(str(folder / TENSORBOARD_FOLDER), purge_step=last_step + 1)

    def log(record: Mapping[str, Any]) -> None:
        for name, value in flatten_record(record):
            writer.add_scalar(name, value, record["step"])
        writer.flush()

    return log


def _wandb(folder: Path) -> Logger | None:
    project = os.environ.get("WANDB_PROJECT")
    if not project:
        return None
    try:
        import wandb  # pyrefly: ignore
    except ImportError:
        return None
    run_id = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    run = wandb.init(project=project, id=run_id, name=folder.name, dir=str(folder), resume="allow")
    return lambda record: run.log(dict(flatten_record(record)), step=record["step"])
