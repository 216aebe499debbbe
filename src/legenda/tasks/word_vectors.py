"""What questions and expressions share: first word vectors, and a split worked through in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import torch

from legenda.errors import UserError
from legenda.models.co_attention import CoAttentionModel
from legenda.regions import Regions

_AT_ONCE = 100
"""Examples whose predictions are made together."""


class Readable(Protocol):
    """A split whose regions can be read."""

    @property
    def read(self) -> Callable[[np.ndarray], Regions]: ...

    @property
    def source(self) -> str: ...


@torch.no_grad()
def begin_words(model: CoAttentionModel, vectors: np.ndarray) -> None:
    """Gives the words of a new model their first vectors `(V, E)`; UserError where they are not as wide as its own."""
    embedding = model.backbone.embedding.weight
    if vectors.shape != embedding.shape:
        raise UserError(
            f"the word vectors have {vectors.shape[1]} channels but {model.name} takes {embedding.shape[1]}; set "
            f"model option word_dim={vectors.shape[1]}, or give other vectors"
        )
    embedding.copy_(torch.from_numpy(vectors))


def in_parts(model: CoAttentionModel, split: Readable, positions: np.ndarray) -> Iterator[tuple[np.ndarray, Regions]]:
    """The positions in parts of at most a hundred, each with its regions on the model's device."""
    device = next(model.parameters()).device
    for part in np.array_split(positions, -(-len(positions) // _AT_ONCE)) if len(positions) else ():
        yield part, split.read(part).to(device)
