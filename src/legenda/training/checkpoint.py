"""The training state: all that a killed run needs to go on as if it had never stopped. Nothing is pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from legenda.errors import UserError
from legenda.io import atomic_write, verified
from legenda.training.distributed import gathered, shared_like

STATE = "training_state.safetensors"

_HINT = "delete it to train from the start, or copy it again"


@dataclass
class Progress:
    """Where a run stands: whole epochs done, steps done in the next one and in all, and the best score so far.

    stage: number of the stage it is in, from 0, with the epochs and steps done before it began (`stage_epoch`,
    `stage_step`) and its validation scores. sums: of what is averaged for the history, over `sum_steps` steps.
    averaged: how many weights have entered their mean. scaler: the state of fp16's scaling of the loss.
    finished: whether nothing is left to train.
    """

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    best: float | None = None
    best_epoch: int = 0
    seconds: float = 0.0
    stage: int = 0
    stage_epoch: int = 0
    stage_step: int = 0
    scores: list[float] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    sum_steps: int = 0
    averaged: int = 0
    scaler: dict[str, Any] = field(default_factory=dict)
    finished: bool = False


def random_state() -> dict[str, Tensor]:
    """The random numbers of this process."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def state_of(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    randoms: Sequence[Mapping[str, Tensor]] | None = None,
    average: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Weights, their mean, optimiser and random numbers by name, each tensor whole; all processes must call it.

    randoms: the `random_state` of every process; that of this one where it is not given.
    """
    state = optimizer.state_dict()
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"average.{name}": tensor for name, tensor in (average or {}).items()}
    for index, values in state["state"].items():
        tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in values.items()}
    for rank, random in enumerate(randoms or [random_state()]):
        tensors |= {f"random.{rank}.{name}": tensor for name, tensor in random.items()}
    return gathered(tensors)


def save_state(folder: Path, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
    """Writes what `state_of` gave, and progress, as one whole file."""
    metadata = {"progress": json.dumps(asdict(progress))}
    with atomic_write(folder / STATE) as partial:
        safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, partial, metadata)


def load_state(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    rank: int = 0,
    average: dict[str, Tensor] | None = None,
) -> Progress:
    """Puts a saved state back into model, optimiser, random numbers of process `rank`, and the dict `average`.

    Raises UserError when the file is truncated or belongs to another model or fewer processes.
    """
    path = folder / STATE
    progress = read_progress(folder)
    tensors = verified(lambda: safetensors.torch.load_file(path), path, _HINT)
    try:
        own = model.state_dict()
        model.load_state_dict({name: shared_like(tensor, tensors[f"model.{name}"]) for name, tensor in own.items()})
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        saved: dict[int, dict[str, Any]] = {}
        for key, tensor in tensors.items():
            if key.startswith("optimizer."):
                _, index, name = key.split(".", 2)
                saved.setdefault(int(index), {})[name] = shared_like(parameters[int(index)], tensor)
            elif key.startswith("average.") and average is not None:
                name = key.removeprefix("average.")
                average[name] = shared_like(own[name], tensor.to(own[name].device))
        optimizer.load_state_dict({**optimizer.state_dict(), "state": saved})
        torch.set_rng_state(tensors[f"random.{rank}.cpu"])
        if torch.cuda.is_available() and f"random.{rank}.cuda" in tensors:
            torch.cuda.set_rng_state(tensors[f"random.{rank}.cuda"])
    except (KeyError, IndexError, TypeError, RuntimeError, ValueError) as error:
        raise UserError(f"{path} is no training state of this run; {_HINT}") from error
    return progress


def read_progress(folder: Path) -> Progress:
    """Where a saved run stands; UserError when its file is damaged."""
    path = folder / STATE
    try:
        return Progress(**json.loads(verified(lambda: _metadata(path), path, _HINT)["progress"]))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is no training state; {_HINT}") from error


def _metadata(path: Path) -> dict[str, str]:
    with safetensors.safe_open(path, framework="pt") as file:
        return file.metadata() or {}
