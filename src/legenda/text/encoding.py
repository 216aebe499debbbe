"""Tokenized texts as tensors of ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from legenda.text.vocabulary import QuestionVocabulary

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor


def encode_tokens(texts: Iterable[Sequence[str]], vocabulary: QuestionVocabulary, length: int) -> Int[Tensor, "Q L"]:
    """Return tokenized texts as ids `(Q, length)`, truncated at the end and padded with 0."""
    import torch

    ids = [vocabulary.encode(tokens[:length]) for tokens in texts]
    padded = np.zeros((len(ids), length), np.int64)
    for row, text_ids in zip(padded, ids, strict=True):
        row[: len(text_ids)] = text_ids
    return torch.from_numpy(padded)
