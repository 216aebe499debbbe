"""What VQA and grounding share: how models are created, pre-trained word vectors, and batches of a split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from legenda.data.expressions import ExpressionDataset
from legenda.data.questions import QuestionDataset
from legenda.errors import ConfigError
from legenda.models.mcan import CoAttentionModel
from legenda.regions import Regions
from legenda.run_folder import VOCABULARY
from legenda.tasks.base import Task
from legenda.text.vocabulary import QuestionVocabulary

_BATCH_SIZE = 100


def create_co_attention_model(
    task: Task, model: str, options: Mapping[str, Any], init_from: Path | None, **sizes: int
) -> CoAttentionModel:
    """Return a new model with the sizes and the vocabulary of the task's data, or with the vocabulary of `init_from`.

    Its word embeddings start from the data's word vectors, if given.
    """
    data = task.data
    vocabulary = data.vocabulary if init_from is None else QuestionVocabulary.load(init_from / VOCABULARY)
    sizes |= {"vocab_size": len(vocabulary), "feature_dim": data.feature_dim, "max_text_length": data.max_text_length}
    created: CoAttentionModel = task.build_model(model, {**options, **sizes})
    created.vocabulary = vocabulary
    if init_from is None and data.vectors is not None:
        init_word_embeddings(created, data.vectors)
    return created


@torch.no_grad()
def init_word_embeddings(model: CoAttentionModel, vectors: np.ndarray) -> None:
    """Initialize the word embeddings of a model with vectors `(V, E)`; raise ConfigError where E differs."""
    embedding = model.backbone.embedding.weight
    if vectors.shape != embedding.shape:
        raise ConfigError(
            f"the word vectors have {vectors.shape[1]} dimensions but {model.name} takes {embedding.shape[1]}; give "
            f"others with data.vectors=true, or set model.word_dim={vectors.shape[1]}"
        )
    embedding.copy_(torch.from_numpy(vectors))


def iter_batches(
    model: CoAttentionModel, split: QuestionDataset | ExpressionDataset, indices: np.ndarray
) -> Iterator[tuple[np.ndarray, Regions]]:
    """Yield batches of indices, each with its regions on the model's device."""
    device = next(model.parameters()).device
    for batch in np.array_split(indices, -(-len(indices) // _BATCH_SIZE)) if len(indices) else ():
        yield batch, split.read(batch).to(device)
