"""What the stages of training share: the model, its loss, averaged weights, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from legenda.io import atomic_write
from legenda.models import Captioner, create_model
from legenda.photo.regions import WIDTH
from legenda.regions import Regions
from legenda.tasks.base import set_vocabulary
from legenda.text import Vocabulary

MODEL = {
    "dim": 256,
    "num_heads": 4,
    "num_layers": 3,
    "ff_dim": 512,
    "dropout": 0.05,
    "norm_first": True,
    "geometry": "none",
    "decoder": {"name": "transformer", "num_layers": 2, "dropout": 0.05, "norm_first": True, "tie_embeddings": True},
}
SMOOTHING = 0.1


def new_model(folder: Path, **options: Any) -> Captioner:
    """Return the captioner with random weights."""
    vocabulary = Vocabulary.load(folder / "vocabulary.txt")
    model = create_model("transformer", vocab_size=len(vocabulary), feature_dim=WIDTH, **{**MODEL, **options})
    set_vocabulary(model, vocabulary)
    return model


def caption_loss(model: Captioner, regions: Regions, captions: np.ndarray) -> Tensor:
    """Return the mean cross-entropy of captions `(B, K, T)`, padded with -1; rows of -1 alone do not count."""
    targets = torch.from_numpy(captions.astype(np.int64))
    real = targets >= 0
    inputs = F.pad(targets.clamp(min=0)[..., :-1], (1, 0), value=model.generation_config.bos_token_id)
    return F.cross_entropy(model(regions, inputs, real), targets[real], label_smoothing=SMOOTHING)


class Averaged:
    """The exponential moving average of a model's weights, with a shorter memory at first."""

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self.weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    def update(self, model: torch.nn.Module) -> None:
        """Take in the present weights."""
        self.updates += 1
        share = 1 - min(self.decay, self.updates / (self.updates + 10))
        for name, tensor in model.state_dict().items():
            self.weights[name].lerp_(tensor.detach(), share)

    def state(self) -> dict[str, Any]:
        """Return what `load` takes."""
        return {"weights": self.weights, "updates": self.updates}

    def load(self, state: dict[str, Any]) -> None:
        """Go on with a state."""
        self.weights, self.updates = state["weights"], state["updates"]


def save(path: Path, **parts: Any) -> None:
    """Write a checkpoint atomically; parts with a state are stored as that."""
    state = {}
    for name, part in parts.items():
        if isinstance(part, Averaged):
            state[name] = part.state()
        else:
            state[name] = part.state_dict() if hasattr(part, "state_dict") else part
    with atomic_write(path) as partial:
        torch.save(state, partial)
