"""Start or resume a training run: model, devices, run folder; and how long it takes."""

from __future__ import annotations

import json
import logging
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from legenda.compute import ComputeOptions
from legenda.config import to_json
from legenda.environment import describe_environment
from legenda.errors import CheckpointError, ConfigError
from legenda.hub import find_model, portable_name
from legenda.images.extractor import UNNAMED, ExtractorIdentity
from legenda.io import FORMAT_VERSION, locked, read_text, write_json
from legenda.models.base import Model
from legenda.models.checkpoint import start_from
from legenda.models.registry import configure
from legenda.models.weights import load_tensors
from legenda.run_folder import CONFIG, STATE, WEIGHTS, name_stages, read_config, stages_of
from legenda.tasks.base import Task, describe_features, describe_split
from legenda.training.checkpoint import read_progress
from legenda.training.config import PATIENCES, TrainingConfig
from legenda.training.distributed import describe_idle_devices, shard, stage_precision
from legenda.training.loop import Callback, TrainingLoop, check_monitor
from legenda.training.stage import Stage

if TYPE_CHECKING:
    from lightning_fabric import Fabric


_DELETE = "delete the folder to start again"
_DATA_DIGEST = "data_digest"
"""The section with digests of the training and of the validation examples, and of a sample of their features."""
_KEPT = ("environment", "format_version", "vocabulary")
"""Sections that stay those of the first call; words are compared one by one."""


def check_folder(folder: Path) -> None:
    """Raise CheckpointError unless `folder` is new, empty, or holds a run."""
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; name a folder with --out")
    if folder.exists() and not (folder / CONFIG).exists() and any(not _is_partial(path) for path in folder.iterdir()):
        raise CheckpointError(f"{folder} is not empty and holds no run; name another folder with --out")


def check_new_folder(folder: Path) -> None:
    """Raise CheckpointError unless `folder` is new or empty."""
    check_folder(folder)
    if (folder / CONFIG).exists():
        raise CheckpointError(f"{folder} holds a run already; name another folder with --out, or {_DELETE}")


def init_run_dir(folder: Path, config: dict[str, object], model: Model) -> None:
    """Create the folder of a run, or check that it holds this run, and delete partially written files.

    More epochs of the last stage than before, or more patience with it, replace the old numbers, so that a finished run
    continues. The environment stays that of the first call.
    """
    check_folder(folder)
    path = folder / CONFIG
    if path.exists():
        old, new = read_config(folder, _DELETE), json.loads(json.dumps(config))
        new = {name: part for name, part in new.items() if name not in _KEPT and part is not None}
        new |= {name: part for name, part in old.items() if name in _KEPT}
        difference, kind = next(differences(_with_epochs_of(new, old), new), None), "settings"
        if difference is None or difference[0].startswith(_DATA_DIGEST):
            difference, kind = _vocabulary_difference(folder, model) or difference, "data"
        if difference is not None:
            name, before, now = difference
            raise CheckpointError(
                f"{folder} holds a run with other {kind} ({name} is {before} there, {now} here); name another folder "
                f"with --out, or {_DELETE}"
            )
        if old != new:
            write_json(path, new)
        if (folder / STATE).exists() and not (folder / WEIGHTS).exists() and read_progress(folder).best is not None:
            raise CheckpointError(f"{folder} has lost its {WEIGHTS}, the best model so far; {_DELETE}")
        if (folder / STATE).exists() and (folder / WEIGHTS).exists():
            load_tensors(folder / WEIGHTS, f"restore it, or {_DELETE}")  # raises where the best model is damaged
        for partial in filter(_is_partial, folder.iterdir()):
            if not partial.is_dir():  # as that of an export, which has its own lock
                partial.unlink()
    else:
        write_json(path, config)
    model.save_vocabulary(folder)


def is_finished(folder: Path, recipe: str) -> bool:
    """Return whether a folder holds a finished run of that recipe with its model."""
    if not all((folder / name).exists() for name in (CONFIG, WEIGHTS, STATE)):
        return False
    return read_config(folder, _DELETE).get("name") == recipe and read_progress(folder).finished


def _with_epochs_of(new: Mapping[str, object], old: Mapping[str, object]) -> Mapping[str, object]:
    """Return `old` with the epochs and the patience that the last stage of `new` has, if those are more."""
    before, now = stages_of(old), stages_of(new)
    if [*before] != [*now]:
        return old
    last = [*now][-1]
    stage = {**before[last]}
    for name in ("epochs", *PATIENCES):
        trained, wanted = stage.get(name), now[last][name]
        if isinstance(trained, int) and isinstance(wanted, int) and trained and (wanted == 0 or wanted > trained):
            stage[name] = wanted
    return {**old, last: stage}


def differences(old: object, new: object, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the name of each setting that differs between two configurations, with both values as text.

    A setting that is missing is null.
    """
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*new, *old)):
            yield from differences(old.get(key), new.get(key), f"{name}.{key}".removeprefix("."))
        return
    before, now = (
        "a table" if isinstance(value, dict) else value if isinstance(value, str) else json.dumps(value)
        for value in (old, new)
    )
    yield name, before, now


def _vocabulary_difference(folder: Path, model: Model) -> tuple[str, str, str] | None:
    """Return the first line that differs in a list of words or answers, as `differences` does."""
    with TemporaryDirectory() as name:
        model.save_vocabulary(Path(name))
        for path in sorted(Path(name).glob("*.txt")):
            if (folder / path.name).exists():
                lines = (read_text(file, _DELETE).split("\n") for file in (folder / path.name, path))
                for number, (before, now) in enumerate(zip_longest(*lines, fillvalue="missing"), start=1):
                    if before != now:
                        return f"line {number} of {path.name}", before, now
    return None


def _is_partial(path: Path) -> bool:
    """Return whether a process was killed while it wrote this file."""
    return path.name.startswith(".") and path.name.endswith(".partial")


_LOG = logging.getLogger(__name__)
_KEPT_CONSENSUS = 0.25
"""Share of a run's consensus weight in the runs that start from it, whose captions may be of another kind: of four such
runs it improves CIDEr-D in all, and the whole weight in three (research/photo/README.md)."""


@dataclass(frozen=True)
class TrainResult:
    """The folder of a finished run, its best validation score, its name and epoch, and the seconds of training in all.

    is_global_zero: whether this is the first of the run's processes, or its only one.
    """

    folder: Path
    monitor: str
    best: float
    best_epoch: int
    seconds: float
    is_global_zero: bool = True


def train(
    model_name: str,
    overrides: Mapping[str, object],
    task: Task,
    stages: Sequence[TrainingConfig],
    folder: str | Path,
    *,
    sections: Mapping[str, object],
    init_from: str | Path | None = None,
    device: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    strategy: Literal["ddp", "fsdp"] = "ddp",
    callback: Callback | None = None,
    profile_steps: int = 0,
) -> TrainResult:
    """Train a named model for a task into a run folder, or resume a stopped run.

    The folder gets config.json (with `sections`), the vocabulary, metrics.jsonl, model.safetensors (the best model by
    the `monitor` of the last stage) and the training state. A run that was killed and resumed ends with the same
    weights, bit for bit on the CPU, as an uninterrupted one.

    overrides: fields of the model's configuration that differ from those of the named model. stages: at least one; each
    later stage starts from the best model of the stage before. init_from: a model folder whose weights and vocabulary
    the run starts with; they are scored first, as epoch 0, and stay the best model until another one is better. device:
    auto, cpu, cuda, cuda:N or mps. devices, nodes: how many share the examples of every step. strategy: replicate the
    model on each device ("ddp"), or shard weights, gradients and optimizer states ("fsdp"). callback: a function that
    is called with each record of the history: after every 20 steps a mapping of step, epoch, loss and other means,
    after every validation one of step, epoch and validation, its scores. Where it returns True, training stops with the
    best model so far (validated first where none is), and the same call continues. profile_steps: of so many steps the
    folder gets trace.json, a trace by PyTorch's profiler. Raise ConfigError or CheckpointError when the folder holds a
    run with other settings, DataError when the loss becomes non-finite.
    """
    folder = Path(folder)
    first = stages[0]
    init_from = None if init_from is None else find_model(init_from)
    for name, stage in name_stages(stages).items():
        task.check_objective(stage, name)
        check_monitor(stage.monitor, task, name)
    fabric = _launch(device, devices, nodes, strategy)
    if fabric.is_global_zero:
        for warning in {describe_idle_devices(stage, fabric.world_size) for stage in stages} - {None}:
            _LOG.warning(warning)
    torch.manual_seed(first.seed)
    model = task.create(model_name, overrides, init_from)
    if init_from is not None:
        _check_extractor(task, init_from)
        start_from(model, init_from)
        task.set_max_length(model)
    for stage in stages:
        configure(model_name, {**vars(model.config), **stage.dropout})  # raises for rates that the model lacks
    config = {
        "format_version": FORMAT_VERSION,
        **sections,
        "task": task.name,
        **model.describe(),
        **to_json(name_stages(stages)),
    }
    if init_from is not None:
        config["init_from"] = to_json(portable_name(init_from), folder)
        weight = read_config(init_from, "give the folder of a trained run").get("consensus")
        if isinstance(weight, int | float):
            config["consensus"] = weight * _KEPT_CONSENSUS
    config |= {"extractor": task.extractor and task.extractor.to_json(), "environment": describe_environment(folder)}
    config[_DATA_DIGEST] = {
        "train": describe_split(task.train),
        "validation": describe_split(task.validation),
        "features": describe_features(task.train),
        "validation_features": describe_features(task.validation),
    }
    # raises for targets that cannot be encoded, which else the first validation would meet
    task.objective_class(model, first, task.validation).sample_targets(np.arange(1), torch.Generator())
    with locked(folder) if fabric.is_global_zero else nullcontext():
        if fabric.is_global_zero:
            init_run_dir(folder, config, model)
        fabric.barrier()
        if fabric.global_rank:
            torch.manual_seed(first.seed + 1_000_003 * fabric.global_rank)  # dropout and samples differ by device
        loop = TrainingLoop(
            fabric,
            task,
            model,
            tuple(stages),
            folder,
            is_trained=init_from is not None,
            callback=callback,
            profile_steps=profile_steps,
        )
        if fabric.is_global_zero and (reason := loop.describe_early_end()) is not None:
            _LOG.warning("%s %s", folder, reason)
        progress = loop.fit(model_name)
        fabric.barrier()
    assert progress.best is not None
    best = progress.best, progress.best_epoch
    return TrainResult(folder, stages[-1].monitor, *best, progress.seconds, fabric.is_global_zero)


def _check_extractor(task: Task, source: Path) -> None:
    """Raise ConfigError where a run that is continued was trained on features of another extractor than the task's."""
    stored = read_config(source, "give the folder of a trained run").get("extractor") or UNNAMED
    expected = ExtractorIdentity.read(stored, source / CONFIG)
    if task.extractor is not None and expected != UNNAMED and expected.find_difference(task.extractor) is not None:
        raise ConfigError(
            f"{task.train.source} was made by the extractor {task.extractor}, but {source} was trained on features of "
            f"{expected}; use the extractor of the training"
        )


def _launch(device: str, devices: int, nodes: int, strategy: Literal["ddp", "fsdp"]) -> Fabric:
    """Return the devices; with several, this process continues as the first worker."""
    from lightning_fabric import Fabric  # late: it takes seconds, and only training needs it
    from lightning_fabric.strategies.model_parallel import ModelParallelStrategy

    world_size = devices * nodes
    fabric_strategy = "ddp" if world_size > 1 else "auto"
    if world_size > 1 and strategy == "fsdp":
        fabric_strategy = ModelParallelStrategy(shard, data_parallel_size=world_size, tensor_parallel_size=1)
    torch_device = ComputeOptions(device=device).resolve()
    if torch_device.index is not None and world_size > 1:
        raise ConfigError(f"{device} is one device, but {world_size} are to be used; choose cuda, or one device")
    fabric = Fabric(
        accelerator=torch_device.type,
        devices=devices if torch_device.index is None else [torch_device.index],
        num_nodes=nodes,
        plugins=stage_precision(torch_device.type),
        strategy=fabric_strategy,
    )
    if world_size > 1:
        fabric.launch()
    return fabric


_STEPS = 4
"""Measured steps of each stage; the first is left out, and the median of the others counts."""


def estimate_seconds(
    model_name: str, overrides: Mapping[str, object], task: Task, stages: Sequence[TrainingConfig], device: str = "auto"
) -> float:
    """Return the seconds that all steps of all stages take on one device, from the time of a few steps.

    The weights are initial ones, with which self-critical samples are longest, and do not change. Evaluations during
    the training are not included; early stopping may shorten it.
    """
    seconds, rng = 0.0, np.random.default_rng(0)
    for config in stages:
        size = min(config.batch_size, len(task.train))
        batches = [rng.choice(len(task.train), size, replace=False) for _ in range(_STEPS)]
        durations = []
        fabric, model = _launch(device, 1, 1, "ddp"), task.create(model_name, overrides, None)
        with (
            TemporaryDirectory(prefix="legenda-estimate-") as folder,
            closing(Stage(fabric, task, model, config, Path(folder))) as stage,
        ):
            for step, batch in enumerate(batches):
                following = batches[step + 1] if step + 1 < _STEPS else None
                generator, start = torch.Generator().manual_seed(step), perf_counter()
                stage.step(batch, generator, 0.0, 1, step, following)
                durations.append(perf_counter() - start)
        steps = config.epochs * config.count_steps(len(task.train))
        seconds += steps * statistics.median(durations[1:])
    return seconds
