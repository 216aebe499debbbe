"""Files of a training as it goes: its state, from which a killed run resumes exactly, its history, and loggers.

The state is one safetensors file, the history metrics.jsonl with one record per line; nothing is pickled.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from pydantic import ConfigDict, TypeAdapter
from torch import Tensor, nn

from legenda.config import NonNegativeInt
from legenda.errors import CheckpointError, DataError, first_line
from legenda.io import atomic_write, read_text, verified, write_text
from legenda.models.weights import check_finite, checksum
from legenda.run_folder import HISTORY, STATE
from legenda.training.distributed import full_tensors, shard_like

_HINT = "delete it to train from the start, or copy it again"


@dataclass
class Progress:
    """How far a run is: finished epochs, steps within the current epoch and in all, and the best score so far.

    stage: the index of the current stage, from 0, with the epochs and steps before it (`stage_epoch`, `stage_step`) and
    its validation scores. sums: metrics summed over `sum_steps` steps, for the history. average_updates: updates of the
    weight average. scaler: state of the gradient scaler of fp16. finished: whether all stages are trained.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    epoch: NonNegativeInt = 0
    step_in_epoch: NonNegativeInt = 0
    step: NonNegativeInt = 0
    best: float | None = None
    best_epoch: NonNegativeInt = 0
    seconds: float = 0.0
    stage: NonNegativeInt = 0
    stage_epoch: NonNegativeInt = 0
    stage_step: NonNegativeInt = 0
    scores: list[float] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    sum_steps: NonNegativeInt = 0
    average_updates: NonNegativeInt = 0
    scaler: dict[str, object] = field(default_factory=dict)
    finished: bool = False


def rng_state() -> dict[str, Tensor]:
    """Return the states of this process's random number generators."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def collect_state(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    rng_states: Sequence[Mapping[str, Tensor]] | None = None,
    average: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Return weights, their average, optimizer and random states by name, unsharded; a collective operation.

    rng_states: the `rng_state` of every process; by default that of this one.
    """
    state = optimizer.state_dict()
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"average.{name}": tensor for name, tensor in (average or {}).items()}
    for index, values in state["state"].items():
        tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in values.items()}
    for rank, states in enumerate(rng_states or [rng_state()]):
        tensors |= {f"random.{rank}.{name}": tensor for name, tensor in states.items()}
    return full_tensors(tensors)


def save_state(folder: Path, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors of `collect_state` and the progress to one file, atomically."""
    text = json.dumps(asdict(progress))
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    metadata = {"progress": text, "checksum": _checksum(text), "tensors": checksum(tensors)}
    with atomic_write(folder / STATE, sync=True) as partial:
        safetensors.torch.save_file(tensors, partial, metadata)


def load_state(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    rank: int = 0,
    average: dict[str, Tensor] | None = None,
) -> Progress:
    """Restore model, optimizer, the random states of process `rank`, and the dict `average`, in place.

    Raise CheckpointError when the file is truncated, differs from its checksum, has values that are not finite, or is
    of another model or fewer processes.
    """
    path = folder / STATE
    progress = read_progress(folder)
    tensors = verified(lambda: safetensors.torch.load_file(path), path, _HINT)
    check_finite(tensors, path, _HINT)
    if _metadata(path).get("tensors") not in (None, checksum(tensors)):
        raise CheckpointError(f"{path} differs from its checksum; {_HINT}")
    saved_ranks = {key.split(".")[1] for key in tensors if key.startswith("random.")}
    if saved_ranks and str(rank) not in saved_ranks:
        raise CheckpointError(
            f"{path} holds the random numbers of {len(saved_ranks)} devices in all, and more cannot continue it; use "
            "as many (--devices, --nodes)"
        )
    try:
        weights = model.state_dict()
        model.load_state_dict({name: shard_like(tensor, tensors[f"model.{name}"]) for name, tensor in weights.items()})
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        saved: dict[int, dict[str, object]] = {}
        for key, tensor in tensors.items():
            if key.startswith("optimizer."):
                _, index, name = key.split(".", 2)
                saved.setdefault(int(index), {})[name] = shard_like(parameters[int(index)], tensor)
            elif key.startswith("average.") and average is not None:
                name = key.removeprefix("average.")
                average[name] = shard_like(weights[name], tensor.to(weights[name].device))
        if len({frozenset(values) for values in saved.values()}) > 1:
            raise ValueError("the parameters have the same parts of the optimizer's state")
        optimizer.load_state_dict({**optimizer.state_dict(), "state": saved})
        torch.set_rng_state(tensors[f"random.{rank}.cpu"])
        if torch.cuda.is_available() and f"random.{rank}.cuda" in tensors:
            torch.cuda.set_rng_state(tensors[f"random.{rank}.cuda"])
    except (KeyError, IndexError, TypeError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{path} is not a training state of this run; {_HINT}") from error
    return progress


def read_progress(folder: Path) -> Progress:
    """Return the progress of a saved run; raise CheckpointError when its file is damaged."""
    path = folder / STATE
    try:
        metadata = verified(lambda: _metadata(path), path, _HINT)
        if metadata["checksum"] != _checksum(metadata["progress"]):
            raise ValueError("the progress differs from its checksum")
        progress = TypeAdapter(Progress).validate_json(metadata["progress"], strict=True)
        if progress.finished and progress.best is None:
            raise ValueError("a finished run has a best score")
        if progress.stage_epoch > progress.epoch or progress.stage_step > progress.step:
            raise ValueError("a stage starts before the current epoch and step")
        return progress
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not a training state; {_HINT}") from error


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _metadata(path: Path) -> dict[str, str]:
    with safetensors.safe_open(path, framework="pt") as file:
        return file.metadata() or {}


def read_history(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a run, oldest first; a last line truncated by a kill is skipped.

    Raise CheckpointError for a damaged file.
    """
    path = folder / HISTORY
    records = []
    lines = read_text(path, "a run folder holds it; train the run again").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            records.append(_parse_record(line))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            if number < len(lines):
                raise CheckpointError(f"{path} is damaged in line {number}; train the run again") from error
    return records


def _parse_record(line: str) -> dict[str, object]:
    """Return a record with whole numbers as step and epoch and numbers as scores of a validation; else raise."""
    record = json.loads(line)
    if not all(isinstance(score, int | float | None) for score in record.get("validation", {}).values()):
        raise TypeError
    return record | {name: int(record[name]) for name in {"step", *record} & {"step", "epoch"}}


def open_history(folder: Path, progress: Progress) -> None:
    """Create the file, or drop the records that a killed run wrote after its last state, of that progress.

    The state at the end of an epoch is saved before its validation, whose record has the same step and the next epoch.
    """

    def is_known(record: Mapping[str, Any]) -> bool:
        step, is_later = record["step"], "validation" in record and record["epoch"] > progress.epoch
        return step < progress.step or (step == progress.step and not is_later)

    records = [*filter(is_known, read_history(folder))] if (folder / HISTORY).exists() else []
    write_text(folder / HISTORY, "".join(json.dumps(record) + "\n" for record in records))


def add_record(folder: Path, record: Mapping[str, object]) -> None:
    """Append a record."""
    path = folder / HISTORY
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    except OSError as error:
        raise DataError(f"{path} could not be written ({error.strerror}); free some space") from error


def _flatten_record(record: Mapping[str, object]) -> Iterable[tuple[str, float]]:
    """Yield the numbers of a record by name, those of a validation as "validation/CIDEr-D"."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}/{inner}", number) for inner, number in _flatten_record(value))
        elif isinstance(value, int | float) and name not in ("step", "epoch"):
            yield name, value


Logger = Callable[[Mapping[str, object]], None]
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

    def log(record: Mapping[str, object]) -> None:
        try:
            if not (folder / TENSORBOARD_FOLDER).is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            for name, value in _flatten_record(record):
                writer.add_scalar(name, value, record["step"])
            writer.flush()
        except Exception as error:  # of its thread, too
            reason = getattr(error, "strerror", None) or first_line(error)
            raise DataError(f"{folder / TENSORBOARD_FOLDER} could not be written ({reason}); train again") from error

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
    # reinit: otherwise the second training of a process would be logged to the run of the first
    run = wandb.init(project=project, id=run_id, name=folder.name, dir=str(folder), resume="allow", reinit=True)
    return lambda record: run.log(dict(_flatten_record(record)), step=record["step"])
