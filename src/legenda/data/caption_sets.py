"""Images with captions, ready for training and validation, whatever they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from legenda.data.captions import CaptionedImage, read_karpathy
from legenda.data.features import FeatureStore
from legenda.data.scenes import FEATURE_DIM, SceneSplit, make_split, truth_scores
from legenda.errors import UserError
from legenda.regions import Regions
from legenda.text import Vocabulary, ptb_tokenize

Scorer = Callable[[Mapping[str, str]], dict[str, float | None]]


@dataclass(frozen=True, eq=False)
class CaptionSet:
    """One split: identities and references of its images, and a reader of their regions.

    read: from an array of positions in this split to the Regions of those images.
    source: what the regions are read from, for messages.
    extractor: the name under which they were made; regions of another extractor do not fit a model.
    score: what is measured of captions beside the usual metrics, or None.
    """

    identities: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]
    read: Callable[[np.ndarray], Regions]
    source: str
    extractor: str
    score: Scorer | None = None

    def __len__(self) -> int:
        return len(self.identities)


@dataclass(frozen=True, eq=False)
class OpenedData:
    """A data set in use: its splits, its vocabulary and the width of its features."""

    train: CaptionSet
    validation: CaptionSet
    vocabulary: Vocabulary
    feature_dim: int
    has_boxes: bool


class DataSettings(Protocol):
    """What a recipe says of its data."""

    def open(self, progress: Callable[[str], None]) -> OpenedData:
        """What training needs, read or made; `progress` hears what is being done."""
        ...

    def split(self, name: str) -> CaptionSet:
        """One split by its name: train, val or test."""
        ...


@dataclass(frozen=True, kw_only=True)
class ScenesData:
    """The embedded scenes: how many of each split, and the seed of their worlds."""

    train: int = 12_000
    validation: int = 300
    test: int = 600
    seed: int = 0

    def open(self, progress: Callable[[str], None]) -> OpenedData:
        """Draws the scenes and finds their regions in the pixels."""
        progress(f"drawing {self.train} scenes for training and {self.validation} for validation")
        train, validation = self.split("train"), self.split("val")
        vocabulary = Vocabulary.build(_tokenized(train.references), min_count=1)
        return OpenedData(train, validation, vocabulary, FEATURE_DIM, True)

    def split(self, name: str) -> CaptionSet:
        """The scenes of a split; no two splits or seeds share one."""
        sizes = {"train": self.train, "val": self.validation, "test": self.test}
        if name not in sizes:
            raise UserError(f"scenes have no split {name!r}; choose from {', '.join(sizes)}")
        if sizes[name] < 1:
            raise UserError(f"the split {name} needs at least 1 scene, not {sizes[name]}")
        return scene_set(make_split(name, sizes[name], self.seed))


def scene_set(made: SceneSplit) -> CaptionSet:
    """Scenes as a caption set; captions of it are also judged for truth."""
    features, boxes, mask = (torch.from_numpy(array) for array in (made.features, made.boxes, made.mask))
    scenes = {scene.identity: scene for scene in made.scenes}

    def read(positions: np.ndarray) -> Regions:
        chosen = torch.from_numpy(positions)
        return Regions(features[chosen], boxes[chosen], mask[chosen])

    def score(captions: Mapping[str, str]) -> dict[str, float | None]:
        return truth_scores(captions, scenes)

    return CaptionSet(tuple(scenes), made.captions, read, "scenes", "scenes", score)


@dataclass(frozen=True, kw_only=True)
class KarpathyData:
    """Annotations in Karpathy's layout beside a feature store whose ids are those of the images."""

    annotations: Path
    """dataset_*.json or .json.gz."""
    features: Path
    """A store made by `legenda extract`."""
    min_count: int = 5
    """Words seen less often in the training captions are unknown."""

    def open(self, progress: Callable[[str], None]) -> OpenedData:
        """Reads the annotations, builds the vocabulary and maps the features; names what is missing."""
        progress(f"reading {self.annotations} and {self.features}")
        store = FeatureStore.open(self.features)
        store.check()
        images = read_karpathy(self.annotations)
        train = self._part(images, store, "train")
        return OpenedData(
            train,
            self._part(images, store, "val"),
            Vocabulary.build(_tokenized(train.references), min_count=self.min_count),
            store.feature_dim,
            store.has_boxes,
        )

    def split(self, name: str) -> CaptionSet:
        """The images of a split that have captions."""
        return self._part(read_karpathy(self.annotations), FeatureStore.open(self.features), name)

    def _part(self, images: Sequence[CaptionedImage], store: FeatureStore, name: str) -> CaptionSet:
        part = [image for image in images if image.split == name and image.captions]
        if not part:
            raise UserError(f"{self.annotations} has no image with captions in the split {name!r}; check its splits")
        return stored_set(part, store, self.features)


def stored_set(images: Sequence[CaptionedImage], store: FeatureStore, path: Path) -> CaptionSet:
    """Images whose features are in a store that was read from `path`; UserError names one that is not."""
    known = set(store.ids)
    missing = [image.id for image in images if image.id not in known]
    if missing:
        raise UserError(
            f"{path} lacks {len(missing)} of the images, such as {missing[0]}; extract features for all of them"
        )
    places = np.array([store.index(image.id) for image in images])

    def read(positions: np.ndarray) -> Regions:
        packed = store.read(places[positions])
        boxes = None if packed.boxes is None else torch.from_numpy(packed.boxes)
        return Regions(torch.from_numpy(packed.features), boxes, torch.from_numpy(packed.mask))

    identities, captions = tuple(image.id for image in images), tuple(image.captions for image in images)
    return CaptionSet(identities, captions, read, str(path), store.extractor)


def _tokenized(references: Sequence[Sequence[str]]) -> list[list[str]]:
    return [ptb_tokenize(caption) for captions in references for caption in captions]


@dataclass(frozen=True, eq=False)
class EncodedCaptions:
    """The captions of a split as ids: begin, words, end, then -1 as padding; `counts` of them are real per image."""

    tokens: Int[Tensor, "B R L"]
    counts: Int[Tensor, " B"]

    @staticmethod
    def of(split: CaptionSet, vocabulary: Vocabulary, max_words: int) -> EncodedCaptions:
        """Captions cut at `max_words` words; a caption without words teaches nothing and is left out."""
        encoded = [
            [ids[:max_words] for caption in captions if (ids := vocabulary.encode(ptb_tokenize(caption)))]
            for captions in split.references
        ]
        for identity, rows in zip(split.identities, encoded, strict=True):
            if not rows:
                raise UserError(f"image {identity} has no caption with a word in it; take it out of the training split")
        most = max(len(rows) for rows in encoded)
        longest = max(len(row) for rows in encoded for row in rows)
        tokens = torch.full((len(encoded), most, longest + 2), -1, dtype=torch.int32)
        for image, rows in enumerate(encoded):
            for number, row in enumerate(rows):
                whole = [vocabulary.begin_id, *row, vocabulary.end_id]
                tokens[image, number, : len(whole)] = torch.tensor(whole, dtype=torch.int32)
        return EncodedCaptions(tokens, torch.tensor([len(rows) for rows in encoded]))

    def rows(self, images: np.ndarray, rows: int, generator: torch.Generator) -> Int[Tensor, "B K T"]:
        """`rows` captions of each image, all different while there are enough, padded with -1 to the longest."""
        chosen = torch.from_numpy(images)
        R = self.tokens.shape[1]
        draw = torch.rand(len(images), R, generator=generator)
        draw[torch.arange(R) >= self.counts[chosen].unsqueeze(1)] = 2.0
        order = draw.argsort(dim=1)
        place = torch.arange(rows).unsqueeze(0) % self.counts[chosen].unsqueeze(1)
        picked = self.tokens[chosen.unsqueeze(1), order.gather(1, place)].long()
        return picked[:, :, : int((picked >= 0).sum(dim=-1).max())]
