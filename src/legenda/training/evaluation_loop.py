"""Evaluation on the validation split during training, distributed over the devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from legenda.errors import ConfigError, did_you_mean
from legenda.models.base import Model, eval_mode
from legenda.tasks.base import Objective, Task, predict_split
from legenda.tasks.captioning import collapse_repeats
from legenda.training.config import TrainingConfig
from legenda.training.distributed import all_gather

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_BATCH_SIZE = 50


def check_monitor(name: str, task: Task) -> None:
    """Raise ConfigError unless validation computes the score `name`."""
    known = task.metric_names()
    if name not in known:
        raise ConfigError(f"training.monitor={name!r} is not a validation score; {did_you_mean(name, known)}")


def validate(
    fabric: Fabric, task: Task, model: Model, config: TrainingConfig
) -> tuple[dict[str, Any], dict[str, float | None]]:
    """Return predictions and scores of the validation split, on every device."""
    split = task.validation
    local = np.arange(fabric.global_rank, len(split), fabric.world_size)
    predictions = predict_split(task, model, split, local, beam_size=config.eval_beam_size)
    if config.eval_collapse_repeats:
        predictions = collapse_repeats(predictions)
    if fabric.world_size == 1:
        return predictions, task.score(predictions, split)
    merged = {id_: prediction for part in all_gather(predictions) for id_, prediction in part.items()}
    predictions = {id_: merged[id_] for id_ in split.ids}
    scores = task.score(predictions, split) if fabric.is_global_zero else {}
    return predictions, fabric.broadcast(scores)


@torch.no_grad()
def validation_loss(fabric: Fabric, objective: Objective) -> float:
    """Return the loss of the validation split, without dropout and scheduled sampling, on every device.

    Self-critical stages have the cross-entropy of the reference captions. It draws no numbers of the global generators.
    """
    starts = range(0, len(objective.split), _BATCH_SIZE)
    totals = torch.zeros(2, len(objective.loss_weights), dtype=torch.float64)
    with eval_mode(objective.model), fabric.autocast():
        for start in starts:
            indices = np.arange(start, min(start + _BATCH_SIZE, len(objective.split)))
            targets = objective.sample_targets(indices, torch.Generator().manual_seed(start))  # the same on all devices
            local = slice(fabric.global_rank, None, fabric.world_size)
            if not len(indices[local]):
                continue
            batch = {**objective.read(indices[local]), **{name: tensor[local] for name, tensor in targets.items()}}
            batch = {name: tensor.to(fabric.device) for name, tensor in batch.items()}
            prepared = objective.prepare(indices[local], batch, 1)
            loss = prepared.finish(objective(batch, *prepared.inputs))
            totals += torch.tensor([[value.item() for value in loss.sums], prepared.normalizers], dtype=torch.float64)
    if fabric.world_size > 1:
        summed = fabric.all_reduce(totals.to(fabric.device), reduce_op="sum")
        assert isinstance(summed, torch.Tensor)
        totals = summed.cpu()
    means = totals[0] / totals[1].clamp(min=1e-9)
    return float((torch.tensor(objective.loss_weights, dtype=torch.float64) * means).sum())
