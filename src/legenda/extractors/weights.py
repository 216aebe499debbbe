"""Weights of detectors and backbones in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from legenda.errors import CheckpointError, ConfigError
from legenda.extractors.base import DOWNLOAD_HINT
from legenda.io import verified
from legenda.torch_pickle import load_checkpoint


def read_weights(path: Path, hint: str) -> dict[str, Tensor]:
    """Return the tensors of a .safetensors or .pth file by name; those in "model" where it is a whole checkpoint.

    Raise DataError, naming the file and the hint, where it cannot be read.
    """
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return verified(lambda: load_file(path), path, hint)
    state = load_checkpoint(path, hint)
    found = state.get("model", state) if isinstance(state, dict) else None
    return found if isinstance(found, dict) else {}


def load_published(build: Any, name: str, allow_download: bool) -> Any:
    """Return a model of torchvision with its published weights; `build` is its function.

    Raise ConfigError where they are neither on this machine nor may be fetched, and DataError where that fails.
    """
    from torchvision.models import get_model_weights

    published: Any = get_model_weights(build)
    file = Path(urlsplit(published.DEFAULT.url).path).name
    if not (allow_download or Path(torch.hub.get_dir(), "checkpoints", file).is_file()):
        raise ConfigError(f"torchvision:{name} is not on this machine; {DOWNLOAD_HINT}")
    return verified(lambda: build(weights="DEFAULT"), f"torchvision:{name}", "name a file, torchvision:MODEL:FILE")


def load_weights(model: nn.Module, state: dict[str, Tensor], path: Path, hint: str) -> None:
    """Load weights by name; raise CheckpointError naming one that is missing or of another shape."""
    expected = {name: value for name, value in model.state_dict().items() if not name.endswith("num_batches_tracked")}
    for name, value in expected.items():
        found = state.get(name)
        if not isinstance(found, Tensor) or found.shape != value.shape:
            shape = tuple(found.shape) if isinstance(found, Tensor) else "nothing"
            raise CheckpointError(f"{path} has {shape} as {name}, where {tuple(value.shape)} is needed; {hint}")
    counters = {n: torch.zeros((), dtype=torch.long) for n in model.state_dict() if n.endswith("num_batches_tracked")}
    model.load_state_dict({**counters, **{name: state[name].float() for name in expected}}, assign=True)
