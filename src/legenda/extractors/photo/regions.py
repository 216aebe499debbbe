"""The regions of the extractor `photo`: the whole image, its things, its parts and predicted words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from legenda.extractors.photo import layout
from legenda.extractors.photo.vision import PARTS, ImageVectors, part_boxes
from legenda.extractors.photo.words import NUM_PHRASES, NUM_WORDS, WordTable
from legenda.models.checkpoint import load_tensors


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
        """Return the predicted shares of captions that hold each word or pair of words, `(W,)`."""
        x = F.linear(self._normalize(vectors), self.tensors["hidden.weight"], self.tensors["hidden.bias"])
        return F.linear(F.gelu(x), self.tensors["words.weight"], self.tensors["words.bias"]).sigmoid().numpy()

    def _normalize(self, vectors: ImageVectors) -> Tensor:
        return (torch.cat([vectors.whole, vectors.others]) - self.tensors["mean"]) * self.tensors["scale"]

    def regions(self, vectors: ImageVectors, shares: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return features `(N, layout.WIDTH)` and boxes `(N, 4)` of an image.

        The whole image, its things, best first, its parts in row-major order, words and pairs of words; words have the
        box of the image. shares: predictions to use instead of the predictor's.
        """
        things = vectors.things
        count = int((things.scores[: layout.MAX_THINGS] >= layout.MIN_SCORE).sum())
        number = 1 + count + PARTS + NUM_WORDS + NUM_PHRASES
        features, boxes = np.zeros((number, layout.WIDTH), np.float32), np.zeros((number, 4), np.float32)
        boxes[:, 2:] = 1
        layout.fill_whole(features, boxes)
        layout.fill_things(
            features, boxes, *(part[:count].numpy() for part in (things.boxes, things.scores, things.classes))
        )
        parts = slice(1 + count, 1 + count + PARTS)
        boxes[parts] = part_boxes().numpy()
        features[parts, layout.IS_PART] = 1
        features[parts, layout.CENTER : layout.CENTER + 2] = (boxes[parts, :2] + boxes[parts, 2:]) / 2 - 0.5
        features[0, layout.SEES_PIXELS] = 1
        visual = torch.cat([vectors.whole.unsqueeze(0), vectors.pooled[:count], vectors.parts])
        visual = (visual - self.tensors["visual_mean"]) @ self.tensors["visual"]
        features[: parts.stop, layout.START_VISUAL : layout.START_GLOBAL] = visual.numpy()
        others = self._normalize(vectors)[len(vectors.whole) :] @ self.tensors["globals"]
        features[0, layout.START_GLOBAL : layout.START_DENSE] = others.numpy()
        self.table.fill(features[None], (self.predict(vectors) if shares is None else shares)[None])
        return features, boxes
