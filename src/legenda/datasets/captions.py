"""Images with captions, ready for training and validation, whatever they come from."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from legenda.datasets.annotations import Restval, read_annotations
from legenda.datasets.karpathy import CaptionedImage
from legenda.datasets.scenes import FEATURE_DIM, SceneCounts, SceneSplit, truth_scores
from legenda.datasets.scenes.reader import scene_reader
from legenda.datasets.tokens import TokenizedCaptions, count_words
from legenda.errors import DataError
from legenda.features.base import FeatureStore
from legenda.features.open import open_features
from legenda.regions import Regions
from legenda.text import Vocabulary

Scorer = Callable[[Mapping[str, str]], dict[str, float | None]]

_SPOTS = 2_000
"""Images of a store that are checked before a training begins."""


@dataclass(frozen=True, eq=False)
class CaptionDataset:
    """One split: identities and references of its images, and a reader of their regions.

    references: what people wrote of each image; nothing of any where a test set withholds it.
    read: from an array of positions in this split to the Regions of those images.
    source: what the regions are read from, for messages.
    extractor: the name under which they were made; regions of another extractor do not fit a model.
    score: what is measured of captions beside the usual metrics, or None.
    """

    ids: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]
    read: Callable[[np.ndarray], Regions]
    source: str
    extractor: str
    score: Scorer | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def missing_targets(self) -> str | None:
        """What the data keep to themselves, so that nothing can be scored; None where some image has a reference."""
        return None if any(self.references) else "captions"

    @cached_property
    def tokenized(self) -> TokenizedCaptions:
        """Return the references as numbered words, tokenized at the first call only."""
        return TokenizedCaptions.of(self.references)


@dataclass(frozen=True, eq=False)
class DataModule:
    """A data set in use: its splits, its vocabulary and the width of its features."""

    train: CaptionDataset
    validation: CaptionDataset
    vocabulary: Vocabulary
    feature_dim: int
    has_boxes: bool


class DataSettings(Protocol):
    """What a recipe says of its data."""

    def open(self, progress: Callable[[str], None]) -> DataModule:
        """What training needs, read or made; `progress` hears what is being done."""
        ...

    def split(self, name: str) -> CaptionDataset:
        """One split by its name: train, val or test."""
        ...


@dataclass(frozen=True, kw_only=True)
class ScenesData(SceneCounts):
    """The embedded scenes: how many of each split, and the seed of their worlds."""

    def open(self, progress: Callable[[str], None]) -> DataModule:
        """Draw the scenes and finds their regions in the pixels."""
        progress(f"drawing {self.train} scenes for training and {self.validation} for validation")
        train, validation = self.split("train"), self.split("val")
        vocabulary = Vocabulary.from_counts(train.tokenized.counts(), min_count=1)
        return DataModule(train, validation, vocabulary, FEATURE_DIM, True)

    def split(self, name: str) -> CaptionDataset:
        """Return the scenes of a split as a caption set."""
        return scene_captions(self.made(name))


def scene_captions(made: SceneSplit) -> CaptionDataset:
    """Scenes as a caption set; captions of it are also judged for truth."""
    scenes = {scene.id: scene for scene in made.scenes}

    def score(captions: Mapping[str, str]) -> dict[str, float | None]:
        return truth_scores(captions, scenes)

    return CaptionDataset(tuple(scenes), made.captions, scene_reader(made), "scenes", "scenes", score)


@dataclass(frozen=True, kw_only=True)
class KarpathyData:
    """Annotated images beside a feature store that knows them by id or by file name."""

    annotations: Path
    """Karpathy's dataset_*.json, COCO's captions_*.json or a folder of them, or a .csv, .tsv or .jsonl with file,
    caption and split; .gz of any."""
    features: Path
    """A store made by `legenda extract` or `legenda convert`, or any that the latter reads."""
    min_count: int = 5
    """Words seen less often in the captions that count are unknown (AoANet: 5, or 6 for 9,487 words; X-LAN: 6)."""
    vocabulary: Literal["train", "all"] = "train"
    """Whose captions count: those of train, or of all splits as in the released codes, which is a leak of the test."""
    restval: Restval = "train"
    """What Karpathy's restval images are: part of train, or a split apart."""
    lists: Path | None = None
    """A folder of lists of images that say the splits, such as val.txt, for annotations that do not."""
    sizes: Path | None = None
    """COCO's annotations with the sizes of the images, for stores with boxes in pixels that lack them."""

    def open(self, progress: Callable[[str], None]) -> DataModule:
        """Read the annotations, builds the vocabulary and maps the features; names what is missing."""
        progress(f"reading {self.annotations} and {self.features}")
        with _without_collection():
            return self._open()

    def _open(self) -> DataModule:
        store = self._store()
        _spot_check(store)
        images = self._images()
        train, validation = (self._part(images, store, name) for name in ("train", "val"))
        counted = [train.tokenized]
        if self.vocabulary == "all":
            others = [image.captions for image in images if image.split != "train"]
            counted.append(TokenizedCaptions.of(others))
        words = Vocabulary.from_counts(count_words(counted), min_count=self.min_count)
        return DataModule(train, validation, words, store.feature_dim, store.has_boxes)

    def split(self, name: str) -> CaptionDataset:
        """Return the images of a split that have captions; all of its images where no captions of it are given."""
        images = self._images()
        known = any(image.captions for image in images if image.split == name)
        return self._part(images, self._store(), name, missing_targets=not known)

    def _store(self) -> FeatureStore:
        return open_features(self.features, sizes=self.sizes)

    def _images(self) -> list[CaptionedImage]:
        return read_annotations(self.annotations, lists=self.lists, restval=self.restval)

    def _part(
        self, images: Sequence[CaptionedImage], store: FeatureStore, name: str, *, missing_targets: bool = False
    ) -> CaptionDataset:
        part = [image for image in images if image.split == name and (image.captions or missing_targets)]
        if not part:
            raise DataError(f"{self.annotations} has no image with captions in the split {name!r}; check its splits")
        return stored_captions(part, store, self.features)


def stored_captions(images: Sequence[CaptionedImage], store: FeatureStore, path: Path) -> CaptionDataset:
    """Images whose features are in a store read from `path`, under their id or their file's name without suffix.

    Raises DataError, naming one, where some are not.
    """
    names = [image.id if image.id in store else PurePosixPath(image.file).stem for image in images]
    missing = [image.id for image, name in zip(images, names, strict=True) if name not in store]
    if missing:
        raise DataError(
            f"{path} lacks {len(missing)} of the images, such as {missing[0]}; extract features for all of them"
        )
    places = np.array([store.index(name) for name in names])

    def read(positions: np.ndarray) -> Regions:
        packed = store.read(places[positions])
        return Regions.from_numpy(packed.features, packed.boxes, packed.mask)

    ids, captions = tuple(image.id for image in images), tuple(image.captions for image in images)
    return CaptionDataset(ids, captions, read, str(path), store.extractor)


@contextmanager
def _without_collection() -> Iterator[None]:
    """No search for garbage meanwhile: among millions of new objects it takes a third of the time and finds none."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _spot_check(store: FeatureStore) -> None:
    """Read a small store wholly and a large one here and there; what lies elsewhere is checked when it is read."""
    step = max(1, len(store) // _SPOTS)
    for first in range(0, len(store), 32 * step):
        store.read(range(first, min(first + 32 * step, len(store)), step))


@dataclass(frozen=True, eq=False)
class EncodedCaptions:
    """The captions of a split as ids: begin, words, end, then -1 as padding; `counts` of them are real per image."""

    tokens: Int[Tensor, "B R L"]
    counts: Int[Tensor, " B"]

    @staticmethod
    def of(split: CaptionDataset, vocabulary: Vocabulary, max_caption_length: int) -> EncodedCaptions:
        """Captions cut at `max_caption_length` words; a caption without words teaches nothing and is left out."""
        rows, counts = split.tokenized.encoded(vocabulary, max_caption_length)
        if not counts.all():
            identity = split.ids[int(counts.argmin())]
            raise DataError(f"image {identity} has no caption with a word in it; take it out of the training split")
        return EncodedCaptions(torch.from_numpy(rows), torch.from_numpy(counts))

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
