"""How long a training takes, from a few measured steps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import torch

from legenda.compute import ComputeOptions
from legenda.tasks.base import Task
from legenda.training.config import TrainingConfig
from legenda.training.stage import Stage

STEPS = 4
"""Measured steps of each stage; the first is left out, and the median of the others counts."""


def estimate_seconds(
    model_name: str, overrides: Mapping[str, Any], task: Task, stages: Sequence[TrainingConfig], device: str = "auto"
) -> float:
    """Return the seconds that all steps of all stages take on one device, from the time of a few steps.

    The weights are initial ones, with which self-critical samples are longest, and do not change. Evaluations during
    the training are not included; early stopping may shorten it.
    """
    from lightning_fabric import Fabric  # late: it takes seconds

    found = ComputeOptions(device=device).resolve()
    devices = [found.index] if found.index is not None else 1
    seconds, rng = 0.0, np.random.default_rng(0)
    for config in stages:
        fabric = Fabric(accelerator=found.type, devices=devices, precision=config.precision)
        stage = Stage(fabric, task, task.create(model_name, overrides, None), config)
        size = min(config.batch_size, len(task.train))
        batches = [rng.choice(len(task.train), size, replace=False) for _ in range(STEPS)]
        durations = []
        with TemporaryDirectory(prefix="legenda-estimate-") as folder:
            for step, batch in enumerate(batches):
                following = batches[step + 1] if step + 1 < STEPS else None
                generator, file = torch.Generator().manual_seed(step), Path(folder) / "batch.safetensors"
                start = perf_counter()
                stage.step(batch, generator, 0.0, 1, file, step=step, next_indices=following)
                durations.append(perf_counter() - start)
        steps = config.epochs * math.ceil(len(task.train) / config.batch_size)
        seconds += steps * statistics.median(durations[1:])
    return seconds
