"""The regions of the extractor `photo`: visual tokens and predicted words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from legenda.data.features.predicted_words import GLOBAL, VISUAL, WIDTH, WordTable
from legenda.models.weights import load_tensors

PARTS = 9
"""Overlapping parts of an image, 3 x 3."""
_START_SCALARS = WIDTH - 8


@dataclass(frozen=True, eq=False)
class ImageVectors:
    """What the two networks compute of B images.

    parts: square roots of MobileNetV2's map, pooled over the image and over its parts, `(B, 1 + PARTS, 1280)`. others:
    detections, the detector's pooled maps and colors, `(B, OTHERS)`.
    """

    parts: Tensor
    others: Tensor

    @property
    def joined(self) -> Tensor:
        """The input of the word predictor."""
        return torch.cat([self.parts[:, 0], self.others], dim=1)


@dataclass(frozen=True, eq=False)
class RegionMaker:
    """Make regions of image vectors, and predict words.

    tensors: `mean` and `scale` of the joined vectors; `hidden.weight`, `hidden.bias`, `words.weight` and `words.bias`
    of the predictor, a network with one hidden layer; `visual` with `visual_mean`, and `globals`: principal directions
    of the parts and of the other vectors.
    """

    table: WordTable
    tensors: dict[str, Tensor]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the maker of a folder; raise LegendaError for a file that is missing or damaged."""
        return cls(WordTable.load(folder), load_tensors(folder / "predictor.safetensors", "install legenda again"))

    def predict(self, vectors: ImageVectors) -> np.ndarray:
        """Return the predicted shares of captions that hold each word or pair of words, `(B, W)`."""
        x = F.linear(self._normalize(vectors), self.tensors["hidden.weight"], self.tensors["hidden.bias"])
        return F.linear(F.gelu(x), self.tensors["words.weight"], self.tensors["words.bias"]).sigmoid().numpy()

    def _normalize(self, vectors: ImageVectors) -> Tensor:
        return (vectors.joined - self.tensors["mean"]) * self.tensors["scale"]

    def regions(self, vectors: ImageVectors, shares: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return features `(B, N, WIDTH)` and boxes `(N, 4)`.

        The whole image, its parts in row-major order, words and pairs of words; words have the box of the image.
        shares: predictions to use instead of the predictor's.
        """
        words = self.table.regions(self.predict(vectors) if shares is None else shares)
        parts = np.zeros((len(words), PARTS, WIDTH), np.float32)
        features = np.concatenate([words[:, :1], parts, words[:, 1:]], axis=1)
        visual = (vectors.parts - self.tensors["visual_mean"]) @ self.tensors["visual"]
        features[:, : 1 + PARTS, :VISUAL] = visual.numpy()
        whole = self._normalize(vectors)[:, vectors.parts.shape[2] :] @ self.tensors["globals"]
        features[:, 0, VISUAL : VISUAL + GLOBAL] = whole.numpy()
        features[:, 1 : 1 + PARTS, _START_SCALARS + 6 :] = _centers()
        boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (features.shape[1], 1))
        centers = _centers() * 2 / 7 + 0.5
        boxes[1 : 1 + PARTS] = np.concatenate([centers - 1.5 / 7, centers + 1.5 / 7], axis=1)
        return features, boxes


def _centers() -> np.ndarray:
    """Return x and y of the parts, -1, 0 or 1, `(PARTS, 2)`; the middle of a part is 0.5 + 2 / 7 of it."""
    y, x = np.divmod(np.arange(PARTS), 3)
    return np.stack([x - 1, y - 1], axis=1).astype(np.float32)
