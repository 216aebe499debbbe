"""The tensors of a model as a safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import nn

from legenda.errors import CheckpointError
from legenda.io import atomic_write, verified
from legenda.run_files import WEIGHTS


def save_weights(weights: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Write the state dict `weights` to model.safetensors, atomically."""
    with atomic_write(folder / WEIGHTS) as partial:
        state = {name: tensor.contiguous() for name, tensor in weights.items()}
        safetensors.torch.save_file(state, partial)


def load_weights(model: nn.Module, path: Path) -> None:
    """Load the tensors of a file into the model; raise CheckpointError unless names and shapes are the model's."""
    hint = "copy the file again or train the model again"
    tensors: dict[str, torch.Tensor] = verified(lambda: safetensors.torch.load_file(path), path, hint)
    state = model.state_dict()
    missing, unexpected = sorted(state.keys() - tensors.keys()), sorted(tensors.keys() - state.keys())
    if missing or unexpected:
        what = f"lacks {missing[0]}" if missing else f"holds {unexpected[0]}, which the model does not have"
        raise CheckpointError(f"{path} {what}; {hint}")
    for name, tensor in state.items():
        if tensor.shape != tensors[name].shape:
            raise CheckpointError(
                f"{path} holds {name} with shape {tuple(tensors[name].shape)} where config.json gives "
                f"{tuple(tensor.shape)}; the two files belong to different models"
            )
    model.load_state_dict(tensors)
