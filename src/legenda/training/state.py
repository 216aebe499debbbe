"""The training state: all that a killed run needs to go on as if it had never stopped. Nothing is pickled."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from legenda.errors import UserError
from legenda.files import checked, whole_file

STATE = "training_state.safetensors"

_REMEDY = "delete it to train from the start, or copy it again"


@dataclass
class Progress:
    """Where a run stands: whole epochs done, steps done in the next one and in all, and the best score so far."""

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    best: float | None = None
    best_epoch: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    loss_steps: int = 0


def save_state(folder: Path, progress: Progress, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Writes weights, optimiser, random numbers and progress as one whole file."""
    state = optimizer.state_dict()
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, values in state["state"].items():
        tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in values.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    metadata = {"progress": json.dumps(asdict(progress))}
    with whole_file(folder / STATE) as partial:
        safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, partial, metadata)


def load_state(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Puts a saved state back into model, optimiser and random numbers.

    Raises UserError when the file is truncated or belongs to another model.
    """
    path = folder / STATE
    progress = read_progress(folder)
    tensors = checked(lambda: safetensors.torch.load_file(path), path, _REMEDY)
    try:
        model.load_state_dict({name: tensors[f"model.{name}"] for name in model.state_dict()})
        saved: dict[int, dict[str, Any]] = {}
        for key, tensor in tensors.items():
            if key.startswith("optimizer."):
                _, index, name = key.split(".", 2)
                saved.setdefault(int(index), {})[name] = tensor
        optimizer.load_state_dict({**optimizer.state_dict(), "state": saved})
        torch.set_rng_state(tensors["random.cpu"])
        if torch.cuda.is_available() and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"])
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise UserError(f"{path} is no training state of this run; {_REMEDY}") from error
    return progress


def read_progress(folder: Path) -> Progress:
    """Where a saved run stands; UserError when its file is damaged."""
    path = folder / STATE
    try:
        return Progress(**json.loads(checked(lambda: _metadata(path), path, _REMEDY)["progress"]))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is no training state; {_REMEDY}") from error


def _metadata(path: Path) -> dict[str, str]:
    with safetensors.safe_open(path, framework="pt") as file:
        return file.metadata() or {}
