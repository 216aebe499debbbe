"""Validation during training, shared out among the devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from legenda.errors import UserError, nearest
from legenda.models.model import Model
from legenda.tasks.base import Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def check_metric(name: str, task: Task) -> None:
    """UserError unless validation measures `name`."""
    measured = task.measured()
    if name not in measured:
        raise UserError(f"training.best_by={name!r} is not measured; {nearest(name, measured)}")


def validate(
    fabric: Fabric, task: Task, model: Model, *, beam_size: int
) -> tuple[dict[str, Any], dict[str, float | None]]:
    """Predictions and scores of the validation split; all devices take a part in it, and all get both."""
    split = task.validation
    own = np.arange(fabric.global_rank, len(split), fabric.world_size)
    predicted = judged(task, model, split, own, beam_size=beam_size)
    if fabric.world_size == 1:
        return predicted, task.score(predicted, split)
    gathered: list[dict[str, Any]] = [{} for _ in range(fabric.world_size)]
    torch.distributed.all_gather_object(gathered, predicted)
    every = {identity: said for part in gathered for identity, said in part.items()}
    predictions = {identity: every[identity] for identity in split.ids}
    scores = task.score(predictions, split) if fabric.is_global_zero else {}
    return predictions, fabric.broadcast(scores)


def judged(
    task: Task | type[Task], model: Model, split: Any, positions: np.ndarray, *, beam_size: int
) -> dict[str, Any]:
    """Predictions of a model without dropout or gradients; its mode is put back afterwards."""
    mode = model.training
    model.eval()
    with torch.no_grad():
        predictions = task.predict(model, split, positions, beam_size=beam_size)
    model.train(mode)
    return predictions
