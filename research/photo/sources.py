"""Images as batches of regions and captions: those of COCO of which only boxes are known, and the photographs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from coco import TRAIN
from noise import DetectorNoise
from torch.nn import functional as F

from legenda.photo.regions import (
    MAX_THINGS,
    MIN_SCORE,
    NUM_PHRASES,
    NUM_WORDS,
    WIDTH,
    WordTable,
    fill_things,
    fill_whole,
)
from legenda.regions import Regions
from legenda.text import Vocabulary


def caption_shares(captions: Sequence[Sequence[str]], index: dict[str, int]) -> np.ndarray:
    """Return the share of tokenized captions that hold each word or pair of words, `(len(index),)`."""
    shares = np.zeros(len(index), np.float32)
    for tokens in captions:
        present = {*tokens, *(" ".join(pair) for pair in pairwise(tokens))}
        for name in present:
            if name in index:
                shares[index[name]] += 1 / len(captions)
    return shares


class BoxedImages:
    """Images of COCO with their captions and true boxes, damaged anew at every draw."""

    def __init__(self, folder: Path) -> None:
        stored = np.load(folder / "captions.npz")
        self.ids, self.captions = stored["ids"], stored["coco"]
        self.boxes, self.classes, self.starts = stored["boxes"], stored["categories"], stored["box_starts"]
        self.noise = DetectorNoise.load(folder / "noise.npz")

    def __len__(self) -> int:
        return len(self.captions)

    def shown(self, images: np.ndarray) -> np.ndarray:
        """Return the classes of which each image has a true box, `(images, 80)`."""
        shown = np.zeros((len(images), 80), bool)
        for row, image in enumerate(images):
            shown[row, self.classes[self.starts[image] : self.starts[image + 1]]] = True
        return shown

    def things(
        self, images: np.ndarray, generator: np.random.Generator
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return boxes, scores and classes of what the detector might see of each image, best first."""
        sizes = self.starts[images + 1] - self.starts[images]
        chosen = np.concatenate([np.arange(self.starts[i], self.starts[i + 1]) for i in images])
        starts = np.concatenate([[0], np.cumsum(sizes)])
        boxes, scores, classes, owner = self.noise.draw(
            self.boxes[chosen] / 4095, self.classes[chosen], starts, generator
        )
        found = []
        for image in range(len(images)):
            mine = np.flatnonzero(owner == image)
            mine = mine[np.argsort(-scores[mine])][:MAX_THINGS]
            mine = mine[scores[mine] >= MIN_SCORE]
            found.append((boxes[mine], scores[mine], classes[mine]))
        return found

    def regions(
        self,
        images: np.ndarray,
        generator: np.random.Generator,
        words: SimulatedWords | None = None,
        given: np.ndarray | None = None,
    ) -> Regions:
        """Return the whole image and its things as regions; with words, those that given captions lead to expect."""
        things = self.things(images, generator)
        others = 0 if words is None else NUM_WORDS + NUM_PHRASES
        longest = 1 + max(len(scores) for _, scores, _ in things) + others
        features = np.zeros((len(images), longest, WIDTH), np.float32)
        boxes = np.zeros((len(images), longest, 4), np.float32)
        boxes[..., 2:] = 1
        mask = np.zeros((len(images), longest), bool)
        for row, found in enumerate(things):
            fill_whole(features[row], boxes[row])
            fill_things(features[row], boxes[row], *found)
            mask[row, : 1 + len(found[1])] = True
        if words is not None:
            assert given is not None
            words.fill(features, given, generator)
            mask[:, longest - others :] = True
        return Regions(torch.from_numpy(features), torch.from_numpy(boxes), torch.from_numpy(mask))


def join(*parts: Regions) -> Regions:
    """Return the images of all parts, padded to the largest number of regions."""
    longest = max(part.features.shape[1] for part in parts)
    features, boxes, masks = [], [], []
    for part in parts:
        more = longest - part.features.shape[1]
        features.append(F.pad(part.features, (0, 0, 0, more)))
        whole = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(len(part.features), more, 4)
        boxes.append(torch.cat([part.boxes, whole], dim=1))
        masks.append(F.pad(part.mask, (0, more)))
    return Regions(torch.cat(features), torch.cat(boxes), torch.cat(masks))


class Photographs:
    """The photographs: their regions and captions.

    `split`, `captions`, `classes` and `row` (that of captions.npz) of each sample; samples from `first_mirrored` on are
    the mirror images of training photographs, in the order of the plain ones.
    """

    def __init__(self, folder: Path) -> None:
        stored, captions = np.load(folder / "photographs.npz"), np.load(folder / "captions.npz")
        self.features, self.boxes, self.starts = stored["features"], stored["boxes"], stored["starts"]
        self.row, self.first_mirrored = stored["row"], int(stored["first_mirrored"])
        self.captions, self.split = captions["photo"][self.row], captions["photo_split"][self.row]
        self.classes = captions["photo_classes"][self.row]

    def rows(self, split: int) -> np.ndarray:
        """Return the plain samples of a split."""
        return np.flatnonzero(self.split[: self.first_mirrored] == split)

    def mirror(self, samples: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return training samples, each by chance replaced by its mirror image, where there are mirror images."""
        if self.first_mirrored == len(self.row):
            return samples
        position = np.searchsorted(self.rows(TRAIN), samples)
        return np.where(generator.random(len(samples)) < 0.5, self.first_mirrored + position, samples)

    def regions(self, samples: np.ndarray) -> Regions:
        """Return the regions of samples."""
        sizes = self.starts[samples + 1] - self.starts[samples]
        features = np.zeros((len(samples), sizes.max(), WIDTH), np.float32)
        boxes = np.zeros((len(samples), sizes.max(), 4), np.float32)
        boxes[..., 2:] = 1
        mask = np.arange(sizes.max()) < sizes[:, None]
        for number, sample in enumerate(samples):
            part = slice(self.starts[sample], self.starts[sample + 1])
            features[number, : sizes[number]], boxes[number, : sizes[number]] = self.features[part], self.boxes[part]
        return Regions(torch.from_numpy(features), torch.from_numpy(boxes), torch.from_numpy(mask))


class SimulatedWords:
    """Predicted words of images without pixels, from two of their captions.

    A ridge regression from the words of two captions of the training photographs to their cross-fitted predictions,
    plus the residuals of a random training photograph.
    """

    def __init__(self, folder: Path, photographs: Photographs, ridge: float = 30.0) -> None:
        self.table = WordTable.load(folder)
        vocabulary = Vocabulary.load(folder / "vocabulary.txt").tokens
        index = {name: number for number, name in enumerate(self.table.names)}
        self.words, self.index = vocabulary, index
        train = np.flatnonzero(photographs.split == TRAIN)
        shares = np.load(folder / "shares.npz")["shares"][train].astype(np.float32)
        given = np.stack([self.shares(captions[:2]) for captions in photographs.captions[train]])
        x, y = self.table.standardize(given), self.table.standardize(shares)
        gram = x.T @ x + ridge * np.eye(x.shape[1], dtype=np.float32)
        self.matrix = np.linalg.solve(gram, x.T @ y).astype(np.float32)
        self.residuals = (y - x @ self.matrix).astype(np.float16)
        self.root_prior = np.sqrt(self.table.prior)

    def shares(self, captions: np.ndarray) -> np.ndarray:
        """Return the share of captions, `(K, T)` ids, that hold each word or pair of words."""
        words = [[self.words[token] for token in caption if token > 0] for caption in captions.tolist()]
        return caption_shares(words, self.index)

    def fill(self, features: np.ndarray, given: np.ndarray, generator: np.random.Generator) -> None:
        """Fill simulated predictions into regions `(B, N, WIDTH)`; given: captions `(B, K, T)`."""
        standardized = self.table.standardize(np.stack([self.shares(captions) for captions in given])) @ self.matrix
        standardized += self.residuals[generator.integers(len(self.residuals), size=len(given))]
        self.table.fill(features, (standardized + self.root_prior).clip(0) ** 2)
