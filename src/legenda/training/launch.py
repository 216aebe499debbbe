"""A run is begun or gone on with: the model, the devices, the folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from legenda.models.checkpoint import WEIGHTS, load_weights
from legenda.models.checkpoint import describe as describe_model
from legenda.models.registry import configure
from legenda.tasks.base import Task, check_stage
from legenda.tasks.rewards import Reward
from legenda.training.config import Training
from legenda.training.distributed import shard
from legenda.training.evaluation_loop import check_metric
from legenda.training.loop import Run
from legenda.training.run_folder import claim_folder

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class Trained:
    """What a run came to: its folder, the best validation score and its epoch, and seconds of training in all.

    first: whether this is the first of the run's processes, or its only one.
    """

    folder: Path
    best: float
    best_epoch: int
    seconds: float
    first: bool = True


def train(
    model_name: str,
    options: Mapping[str, Any],
    task: Task,
    training: Training,
    folder: str | Path,
    *,
    sections: Mapping[str, Any],
    fine_tuning: Training | None = None,
    start: str | Path | None = None,
    rewards: Mapping[str, Reward] | None = None,
    devices: int = 1,
    nodes: int = 1,
    strategy: Literal["ddp", "fsdp"] = "ddp",
) -> Trained:
    """Trains a named model for a task into a run folder, or goes on where an earlier call was stopped.

    The folder gets config.json (with `sections`), the model's words, metrics.jsonl and metrics.csv, model.safetensors
    (the best by `training.best_by`) and the training state. A run that was killed and called again ends with the same
    weights, bit for bit on the CPU, as one that was not.

    fine_tuning: a second stage, which begins with the best model of the first. start: a model folder whose weights and
    words the run begins with. rewards: your own, by the names that `training.self_critical.rewards` weighs.
    devices, nodes: how many take part; every step's examples are shared out among them. strategy: each device holds the
    whole model ("ddp"), or a share of its weights, gradients and optimiser ("fsdp"). Raises UserError when the folder
    holds a run with other settings, or the loss is no longer a number.
    """
    folder = Path(folder)
    stages = (training,) if fine_tuning is None else (training, fine_tuning)
    for stage in stages:
        check_stage(task, stage)
        check_metric(stage.best_by, task)
    fabric = _launched(training, devices, nodes, strategy)
    torch.manual_seed(training.seed)
    model = task.create(model_name, options, None if start is None else Path(start))
    if start is not None:
        load_weights(model, Path(start) / WEIGHTS)
    for stage in stages:
        configure(model_name, {**vars(model.config), **stage.dropout})  # refuses what the model does not have
    config = {"model": describe_model(model), **sections, "training": asdict(training)}
    if fine_tuning is not None:
        config["fine_tuning"] = asdict(fine_tuning)
    if start is not None:
        config["start"] = str(Path(start).resolve())
    config |= {"task": task.name, "extractor": task.extractor}
    if fabric.is_global_zero:
        claim_folder(folder, config, model)
    fabric.barrier()
    if fabric.global_rank:
        torch.manual_seed(training.seed + 1_000_003 * fabric.global_rank)  # each device its own dropout and samples
    progress = Run(fabric, task, model, stages, folder, rewards).to_the_end(model_name)
    fabric.barrier()
    assert progress.best is not None
    return Trained(folder, progress.best, progress.best_epoch, progress.seconds, fabric.is_global_zero)


def _launched(training: Training, devices: int, nodes: int, strategy: Literal["ddp", "fsdp"]) -> Fabric:
    """The devices; with several, this process goes on as one of theirs."""
    from lightning_fabric import Fabric  # late: it takes seconds, and only training needs it
    from lightning_fabric.strategies.model_parallel import ModelParallelStrategy

    together = devices * nodes
    chosen = "auto"
    if together > 1:
        chosen = (
            "ddp"
            if strategy == "ddp"
            else ModelParallelStrategy(shard, data_parallel_size=together, tensor_parallel_size=1)
        )
    fabric = Fabric(accelerator="auto", devices=devices, num_nodes=nodes, precision=training.precision, strategy=chosen)
    if together > 1:
        fabric.launch()
    return fabric
