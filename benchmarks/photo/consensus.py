"""The reward and the recipe of self-critical training of the packaged captioner.

It reads the files that prepare.py writes to the folder `photo`.

legenda train photo.consensus --plugin benchmarks/photo/consensus.py --init-from runs/photo --out runs/consensus
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix

import legenda
from legenda.data.captions import CaptionDataset, KarpathyData
from legenda.recipes import get_recipe
from legenda.tasks.config import SelfCriticalConfig
from legenda.text import Vocabulary, ptb_tokenize
from legenda.training.schedules import Cosine


@legenda.register_reward("consensus")
class Consensus:
    """CIDEr against what the captions of similar training images lead to expect, without the image's own captions.

    Kernel ridge regression from image vectors to the TF-IDF vectors of captions, cross-fitted in the predictor's folds;
    the reward is the mean over n = 1..4 of the product of the candidate's normalized vector and the expected one, times
    10, with CIDEr-D's penalty of lengths that differ from the expected one (Vedantam et al., CVPR 2015).
    """

    gamma, ridge, dense_weight = 0.6, 0.6, 0.7
    kept = 1_500
    """Entries of each expected vector, those of the largest magnitude."""

    def __init__(self, split: CaptionDataset, vocabulary: Vocabulary, path: Path = Path("photo/kernel.npz")) -> None:
        self.words, self.end = vocabulary.tokens, vocabulary.eos_token_id
        captions = [[ptb_tokenize(text) for text in references] for references in split.references]
        weights = self._weights(np.load(path), split.ids)
        self.index: list[dict[tuple[str, ...], int]] = []
        self.idf: list[np.ndarray] = []
        self.entries: list[tuple[np.ndarray, np.ndarray]] = []
        self.most = np.log(len(captions))
        self.lengths = weights @ np.array(
            [np.mean([len(tokens) for tokens in image]) for image in captions], np.float32
        )
        for n in range(1, 5):
            counts = Counter(gram for image in captions for gram in {g for tokens in image for g in _grams(tokens, n)})
            self.index.append({gram: number for number, gram in enumerate(counts)})
            self.idf.append(self.most - np.log(np.fromiter(counts.values(), float)))
            self.entries.append(self._expected(captions, weights, n))

    def _weights(self, kernel: Mapping[str, np.ndarray], ids: Sequence[str]) -> np.ndarray:
        """Return the weight of each training image's captions for each training image, `(B, B)`."""
        row = {name: number for number, name in enumerate(kernel["ids"].tolist())}
        order = np.array([row[name] for name in ids])
        z = np.concatenate([kernel["x"], self.dense_weight * kernel["dense"]], axis=1)[order]
        folds, norms = kernel["folds"][order], (z**2).sum(1)
        similar = np.exp(-self.gamma * (norms[:, None] + norms - 2 * z @ z.T).clip(0))
        weights = np.zeros_like(similar)
        for fold in np.unique(folds):
            inside, outside = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
            gram = similar[np.ix_(outside, outside)] + self.ridge * np.eye(len(outside), dtype=np.float32)
            found = cho_solve(cho_factor(gram), similar[np.ix_(outside, inside)]).T
            weights[np.ix_(inside, outside)] = found + (1 - found.sum(1, keepdims=True)) / len(outside)
        return weights

    def _vector(self, tokens: Sequence[str], n: int) -> tuple[list[int], np.ndarray]:
        """Return the known n-grams and their normalized TF-IDF; unknown n-grams count in the norm."""
        index, idf = self.index[n - 1], self.idf[n - 1]
        counts = Counter(_grams(tokens, n))
        values = {gram: count * (idf[index[gram]] if gram in index else self.most) for gram, count in counts.items()}
        norm = np.sqrt(sum(value**2 for value in values.values())) + 1e-9
        known = [gram for gram in values if gram in index]
        return [index[gram] for gram in known], np.array([values[gram] / norm for gram in known])

    def _expected(
        self, captions: Sequence[Sequence[Sequence[str]]], weights: np.ndarray, n: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the n-grams and the values of each image's expected vector."""
        rows, columns, values = [], [], []
        for row, image in enumerate(captions):
            for tokens in image:
                found, tf_idf = self._vector(tokens, n)
                rows += [row] * len(found)
                columns += found
                values += (tf_idf / len(image)).tolist()
        shape = len(captions), len(self.index[n - 1])
        matrix = csr_matrix((np.array(values, np.float32), (rows, columns)), shape).T.tocsr()
        kept, indices, entries = min(self.kept, shape[1]), [], []
        for first in range(0, len(captions), 300):
            block = (matrix @ weights[first : first + 300].T).T
            chosen = np.sort(np.argpartition(-np.abs(block), kept - 1, axis=1)[:, :kept], axis=1)
            indices.append(chosen.astype(np.int32))
            entries.append(np.take_along_axis(block, chosen, axis=1))
        return np.concatenate(indices), np.concatenate(entries)

    def __call__(self, images: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the reward of K captions of each image, `(B, K)`."""
        return np.array(
            [[self._score(int(i), row.tolist()) for row in rows] for i, rows in zip(images, tokens, strict=True)]
        )

    def _score(self, image: int, ids: list[int]) -> float:
        ended = ids[: ids.index(self.end)] if self.end in ids else ids
        caption = [self.words[number] for number in ended]
        total = 0.0
        for n in range(1, 5):
            found, values = self._vector(caption, n)
            indices, entries = (part[image] for part in self.entries[n - 1])
            slots = np.searchsorted(indices, found).clip(max=len(indices) - 1)
            total += float((entries[slots] * (indices[slots] == found) * values).sum())
        return 10 / 4 * total * np.exp(-((len(caption) - self.lengths[image]) ** 2) / 72)


def _grams(tokens: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]


_photo = get_recipe("photo")
_folder = Path("photo")
_halves = KarpathyData(annotations=_folder / "halves.json", features=_folder / "photo.safetensors", min_count=4)

legenda.register_recipe(
    replace(
        _photo,
        name="photo.consensus",
        summary="self-critical training with the reward consensus, after photo",
        data=_halves,
        stages=(
            replace(
                _photo.stages[0],
                epochs=2,
                objective="self_critical",
                self_critical=SelfCriticalConfig(rewards={"consensus": 1.0, "CIDEr-D": 0.25}, xe_weight=0.1),
                schedule=Cosine(learning_rate=1e-4, min_learning_rate=1e-5, total_steps=1250, warmup_steps=30),
                ema_decay=0.98,
            ),
        ),
    )
)
