"""What VQA and grounding share: pre-trained word vectors, and batches of a split."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from legenda.datasets.expressions import ExpressionDataset
from legenda.datasets.questions import QuestionDataset
from legenda.errors import ConfigError
from legenda.models.co_attention import CoAttentionModel
from legenda.regions import Regions

_BATCH_SIZE = 100


@torch.no_grad()
def init_word_embeddings(model: CoAttentionModel, vectors: np.ndarray) -> None:
    """Initialize the word embeddings of a model with vectors `(V, E)`; raise ConfigError where E differs."""
    embedding = model.backbone.embedding.weight
    if vectors.shape != embedding.shape:
        raise ConfigError(
            f"the word vectors have {vectors.shape[1]} dimensions but {model.name} takes {embedding.shape[1]}; set "
            f"model option word_dim={vectors.shape[1]}, or give other vectors"
        )
    embedding.copy_(torch.from_numpy(vectors))


def iter_batches(
    model: CoAttentionModel, split: QuestionDataset | ExpressionDataset, indices: np.ndarray
) -> Iterator[tuple[np.ndarray, Regions]]:
    """Yield batches of indices, each with its regions on the model's device."""
    device = next(model.parameters()).device
    for batch in np.array_split(indices, -(-len(indices) // _BATCH_SIZE)) if len(indices) else ():
        yield batch, split.read(batch).to(device)
