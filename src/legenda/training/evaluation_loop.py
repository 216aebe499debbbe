"""Evaluation on the validation split during training, distributed over the devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from legenda.errors import ConfigError, did_you_mean
from legenda.models.model import Model
from legenda.tasks.base import Task, predict_split
from legenda.training.distributed import all_gather

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def check_monitor(name: str, task: Task) -> None:
    """Raise ConfigError unless validation computes the score `name`."""
    known = task.metric_names()
    if name not in known:
        raise ConfigError(f"training.monitor={name!r} is not a validation score; {did_you_mean(name, known)}")


def validate(
    fabric: Fabric, task: Task, model: Model, *, beam_size: int
) -> tuple[dict[str, Any], dict[str, float | None]]:
    """Return predictions and scores of the validation split, on every device."""
    split = task.validation
    local = np.arange(fabric.global_rank, len(split), fabric.world_size)
    predictions = predict_split(task, model, split, local, beam_size=beam_size)
    if fabric.world_size == 1:
        return predictions, task.score(predictions, split)
    merged = {id_: prediction for part in all_gather(predictions) for id_, prediction in part.items()}
    predictions = {id_: merged[id_] for id_ in split.ids}
    scores = task.score(predictions, split) if fabric.is_global_zero else {}
    return predictions, fabric.broadcast(scores)
