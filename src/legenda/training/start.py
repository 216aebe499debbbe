"""A run is begun or gone on with: the model, the devices, the folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from legenda.data.caption_sets import OpenedData
from legenda.errors import UserError
from legenda.models import Captioner, create_model
from legenda.models.storage import VOCABULARY, WEIGHTS, load_weights
from legenda.models.storage import describe as describe_model
from legenda.text import Vocabulary
from legenda.training.folder import claim_folder
from legenda.training.loop import Run
from legenda.training.rewards import Reward
from legenda.training.settings import Training
from legenda.training.validation import check_metric

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
    data: OpenedData,
    training: Training,
    folder: str | Path,
    *,
    sections: Mapping[str, Any],
    fine_tuning: Training | None = None,
    start: str | Path | None = None,
    rewards: Mapping[str, Reward] | None = None,
    devices: int = 1,
    nodes: int = 1,
) -> Trained:
    """Trains a named model on opened data into a run folder, or goes on where an earlier call was stopped.

    The folder gets config.json (with `sections`), vocabulary.txt, metrics.jsonl and metrics.csv, model.safetensors (the
    best by `training.best_by`) and the training state. A run that was killed and called again ends with the same
    weights, bit for bit on the CPU, as one that was not.

    fine_tuning: a second stage, which begins with the best model of the first. start: a model folder whose weights and
    vocabulary the run begins with. rewards: your own, by the names that `training.self_critical.rewards` weighs.
    devices, nodes: how many take part; every step's images are shared out among them. Raises UserError when the folder
    holds a run with other settings, or the loss is no longer a number.
    """
    folder = Path(folder)
    stages = (training,) if fine_tuning is None else (training, fine_tuning)
    for stage in stages:
        check_metric(stage.best_by, data.validation)
    fabric = _launched(training, devices, nodes)
    torch.manual_seed(training.seed)
    if start is not None:
        data = replace(data, vocabulary=Vocabulary.load(Path(start) / VOCABULARY))
    model = _model(model_name, options, data)
    if start is not None:
        load_weights(model, Path(start) / WEIGHTS)
    config = {"model": describe_model(model), **sections, "training": asdict(training)}
    if fine_tuning is not None:
        config["fine_tuning"] = asdict(fine_tuning)
    if start is not None:
        config["start"] = str(Path(start).resolve())
    config["extractor"] = data.train.extractor
    if fabric.is_global_zero:
        claim_folder(folder, config, data.vocabulary)
    fabric.barrier()
    if fabric.global_rank:
        torch.manual_seed(training.seed + 1_000_003 * fabric.global_rank)  # each device its own dropout and samples
    progress = Run(fabric, model, data, stages, folder, rewards).to_the_end(model_name)
    fabric.barrier()
    assert progress.best is not None
    return Trained(folder, progress.best, progress.best_epoch, progress.seconds, fabric.is_global_zero)


def _launched(training: Training, devices: int, nodes: int) -> Fabric:
    """The devices; with several, this process goes on as one of theirs."""
    from lightning_fabric import Fabric  # late: it takes seconds, and only training needs it

    together = devices * nodes
    strategy = "ddp" if together > 1 else "auto"
    fabric = Fabric(
        accelerator="auto", devices=devices, num_nodes=nodes, precision=training.precision, strategy=strategy
    )
    if together > 1:
        fabric.launch()
    return fabric


def _model(name: str, options: Mapping[str, Any], data: OpenedData) -> Captioner:
    model = create_model(name, **options, vocab_size=len(data.vocabulary), feature_dim=data.feature_dim)
    if model.needs_boxes and not data.has_boxes:
        raise UserError(
            f"{data.train.source} holds no boxes, which {name} needs for its geometry; extract it again with "
            "boxes or train a model without geometry, such as transformer"
        )
    model.vocabulary = data.vocabulary
    unknown = data.vocabulary.unknown_id
    model.decoding = replace(
        model.decoding,
        begin_id=data.vocabulary.begin_id,
        end_id=data.vocabulary.end_id,
        banned_ids=() if unknown is None else (unknown,),  # no caption is better for an unknown word
    )
    return model
