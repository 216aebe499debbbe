"""The captions of a data set as token ids, tokenized once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

import numpy as np

from legenda.config import PositiveInt
from legenda.data.registry import Data
from legenda.data.scenes import FEATURE_DIM, SCENES, SceneCounts, SceneSplit, truth_scores
from legenda.data.scenes.pixels import scene_reader
from legenda.errors import DataError
from legenda.features.base import ConcatFeatureStore, FeatureStore, RegionReader
from legenda.features.readers import open_features
from legenda.images.extractor import ExtractorIdentity
from legenda.io import without_gc
from legenda.metrics.cider import COCO, DocumentFrequencies, coco_frequencies
from legenda.terminal import counted
from legenda.text import Vocabulary, ptb_tokenize
from legenda.text.annotations import CaptionedImage, Restval, read_annotations
from legenda.text.ngrams import number_tokens
from legenda.text.tables import Columns
from legenda.text.tokenizers import create_tokenizer
from legenda.text.vocabulary import END, UNKNOWN

if TYPE_CHECKING:
    import torch
    from jaxtyping import Int
    from PIL import Image
    from torch import Tensor

    from legenda.models.backbone import Backbone

__all__ = ["CaptionDataset", "DataModule", "KarpathyData", "ScenesData"]


@dataclass(frozen=True, eq=False)
class TokenizedCaptions:
    """The captions of B images; words are numbered in the order of first occurrence.

    words: the word of each id.
    token_ids: the ids of the words of all captions, concatenated, int32.
    offsets: caption c has token_ids[offsets[c] : offsets[c + 1]], int64.
    image_offsets: image i has the captions image_offsets[i] to image_offsets[i + 1], int64.
    """

    words: tuple[str, ...]
    token_ids: np.ndarray
    offsets: np.ndarray
    image_offsets: np.ndarray

    @staticmethod
    def of(
        references: Sequence[Sequence[Any]], tokenize: Callable[[Any], Sequence[str]] = ptb_tokenize
    ) -> TokenizedCaptions:
        """Return the captions of each image, tokenized, by default as the metrics do; `tuple` keeps tokens."""
        numbers, token_ids, lengths = number_tokens(map(tokenize, chain.from_iterable(references)))
        offsets, images = (np.cumsum([0, *sizes], dtype=np.int64) for sizes in (lengths, map(len, references)))
        return TokenizedCaptions(tuple(numbers), token_ids, offsets, images)

    def counts(self) -> dict[str, int]:
        """Return the frequency of each word."""
        return dict(zip(self.words, np.bincount(self.token_ids, minlength=len(self.words)).tolist(), strict=True))

    def ids(self, encode: Callable[[Sequence[str]], Sequence[int]]) -> list[list[np.ndarray]]:
        """Return every caption of every image as ids, without bos and eos. encode: returns the ids of words."""
        ids = np.array(encode(self.words), np.int32)[self.token_ids]
        captions = [ids[first:last] for first, last in pairwise(self.offsets.tolist())]
        return [captions[first:last] for first, last in pairwise(self.image_offsets.tolist())]


Scorer = Callable[[Mapping[str, str]], dict[str, float | None]]

_MAX_CHECKED_IMAGES = 2_000
"""Images of a store that are validated before training."""


@dataclass(frozen=True, eq=False)
class CaptionDataset:
    """One split: ids and references of its images, and a reader of their regions.

    references: the human captions of each image; empty for test sets without public captions.
    read: from positions in this split `(B,)` to the Regions of those images.
    source: what the regions are read from, for messages.
    extractor: the extractor of the regions, which must be that of the model.
    score: further metrics of captions, or None.
    tokenize: returns the references as tokens for the model; by default they are tokenized as the metrics do.
    open_images: from positions to the images, for rewards that see them; None where only features are known.
    window: images of a stream are shuffled within windows of so many; 0 shuffles all.
    document_frequencies: where CIDEr-D counts n-grams: "own", in the references of this split, or "coco", in COCO's
    captions, whose counts the package holds.
    """

    ids: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]
    read: RegionReader
    source: str
    extractor: ExtractorIdentity
    score: Scorer | None = None
    tokenize: Callable[[], TokenizedCaptions] | None = None
    open_images: Callable[[np.ndarray], list[Image.Image]] | None = None
    window: int = 0
    document_frequencies: Literal["own", "coco"] = "own"

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def missing_targets(self) -> str | None:
        """The word "captions" where no image has a reference, so that nothing can be scored; else None."""
        return None if any(self.references) else "captions"

    @cached_property
    def frequencies(self) -> DocumentFrequencies | None:
        """The document frequencies of COCO's captions for CIDEr-D; None where the references are counted."""
        return coco_frequencies() if self.document_frequencies == COCO else None

    @cached_property
    def tokenized(self) -> TokenizedCaptions:
        """The references as numbered words, tokenized when they are first read."""
        return TokenizedCaptions.of(self.references) if self.tokenize is None else self.tokenize()


@dataclass(frozen=True, eq=False)
class DataModule:
    """The splits of a data set, its vocabulary and the width of its features.

    backbone: the network that is trained with the model and makes features of pixels, which `read` then returns.
    max_length: tokens of the longest generated caption; None for the default of the model.
    """

    train: CaptionDataset
    validation: CaptionDataset
    vocabulary: Vocabulary
    feature_dim: int
    has_boxes: bool
    backbone: Backbone | None = None
    max_length: int | None = None


class ScenesData(SceneCounts[CaptionDataset]):
    """The embedded scenes: how many of each split, and their seed."""

    kind: Literal["scenes"] = "scenes"

    def open(self, progress: Callable[[str], None]) -> DataModule:
        """Draw the scenes and find their regions in the pixels."""
        progress(f"drawing {counted(self.train, 'scenes')} for training and {self.validation} for validation")
        train, validation = self.split("train"), self.split("val")
        vocabulary = Vocabulary.from_counts(train.tokenized.counts(), min_count=1)
        return DataModule(train, validation, vocabulary, FEATURE_DIM, True)

    def split(self, name: str) -> CaptionDataset:
        """Return the scenes of a split as a caption set."""
        return scene_captions(self.generate(name))


def scene_captions(scene_split: SceneSplit) -> CaptionDataset:
    """Return scenes as a caption set; `score` checks captions against the scenes."""
    scenes = {scene.id: scene for scene in scene_split.scenes}
    score = partial(truth_scores, scenes=scenes)
    return CaptionDataset(tuple(scenes), scene_split.captions, scene_reader(scene_split), "scenes", SCENES, score)


_VALIDATION, _ENOUGH = 5, 200
"""One of so many images validates where the data have no split val, but about so many suffice."""


class CaptionedData(Data[CaptionDataset]):
    """Captioned images, and how their captions become tokens; subclasses know where captions and regions are.

    Where there is no split val, about a fifth of the training images belongs to it, of more than 1,000 about 200.
    """

    min_count: PositiveInt = 5
    """Words that are less frequent in the counted captions become <unk> (AoANet and MD-SAN: 5; NG-SAN and X-LAN: 6)."""
    vocabulary: Literal["train", "train_val", "all"] = "train"
    """The splits whose captions are counted: train; train and val, as in MD-SAN's release; all, as in the others, which
    leaks words of test captions."""
    tokenizer: Literal["ptb", "karpathy", "words", "spacy", "vatex"] = "ptb"
    """How captions become tokens for the model: as the metrics do; by the `tokens` of Karpathy's files, as the papers
    do, or "words" where a file has none; as runs of word characters in lower case; by spaCy without punctuation, as
    MD-SAN's release does; as words and punctuation, as VATEX's does."""
    special_tokens: tuple[str, ...] = (END, UNKNOWN)
    """The first entries of the vocabulary: "<end>", "<unk>" and perhaps "<begin>" and "<pad>"."""

    document_frequencies: Literal["own", "coco"] = "own"
    """Where CIDEr-D counts how rare an n-gram is: in the references that are scored, or in COCO's captions, which gives
    few or similar images a meaning too."""
    max_length: PositiveInt | None = None
    """Tokens of the longest generated caption, its end included; by default as in the model's release."""

    @property
    def source(self) -> str:
        """The file or folder that the captions are read from, for messages."""
        raise NotImplementedError

    def read_images(self) -> list[CaptionedImage]:
        """Return all images with their captions."""
        raise NotImplementedError

    def split_images(self) -> list[CaptionedImage]:
        """Return all images, with some of train in the split val where there is none.

        The checksum of its id chooses an image, so that it keeps its split where images are added or reordered.
        """
        images = self.read_images()
        if any(image.split == "val" for image in images):
            return images
        order = {image.id: crc32(image.id.encode(errors="surrogatepass")) for image in images if image.split == "train"}
        share = max(_VALIDATION, len(order) / _ENOUGH)
        chosen = {image for image, checksum in order.items() if checksum < 2**32 / share}
        if len(order) > 1 and len(chosen) in (0, len(order)):
            chosen = {min(order, key=order.__getitem__)}
        return [replace(image, split="val") if image.id in chosen else image for image in images]

    def open_regions(self, *, train: bool = False) -> RegionSource:
        """Return the source of the images' regions. train: whether it is for a training, which checks them first."""
        raise NotImplementedError

    @without_gc()
    def open(self, progress: Callable[[str], None]) -> DataModule:
        """Read the captions, build the vocabulary and open the features."""
        progress(f"reading {self.source}")
        regions = self.open_regions(train=True)
        images = self.split_images()
        if self._lacks_tokens(images):
            progress(f"{self.source} lacks tokens; captions are split into runs of word characters instead")
        train, validation = (self._part(images, regions, name) for name in ("train", "val"))
        progress(f"{counted(len(train), 'images')} to train on and {len(validation)} to validate")
        counts = Counter(train.tokenized.counts())
        further = {"train": [], "train_val": ["val"], "all": {image.split for image in images} - {"train"}}
        others = [image for image in images if image.split in further[self.vocabulary]]
        counts.update(self._tokenize(others, images).counts())
        words = Vocabulary.from_counts(counts, min_count=self.min_count, special_tokens=self.special_tokens)
        return DataModule(
            train, validation, words, regions.feature_dim, regions.has_boxes, regions.backbone, self.max_length
        )

    def split(self, name: str) -> CaptionDataset:
        """Return the images of a split that have captions; all of its images where no captions of it are given."""
        images = self.split_images()
        known = any(image.captions for image in images if image.split == name)
        return self._part(images, self.open_regions(), name, missing_targets=not known)

    def _part(
        self, images: Sequence[CaptionedImage], regions: RegionSource, name: str, *, missing_targets: bool = False
    ) -> CaptionDataset:
        part = [image for image in images if image.split == name and (image.captions or missing_targets)]
        if not part:
            splits = ", ".join(sorted({image.split for image in images}))
            raise DataError(f"{self.source} has no image with captions in the split {name!r}; its splits are {splits}")
        return replace(
            regions.captions(part),
            tokenize=None if self.tokenizer == "ptb" else lambda: self._tokenize(part, images),
            document_frequencies=self.document_frequencies,
        )

    def _tokenize(self, part: Sequence[CaptionedImage], images: Sequence[CaptionedImage]) -> TokenizedCaptions:
        """Return the captions of a part of all images as tokens."""
        if self.tokenizer == "karpathy" and not self._lacks_tokens(images):
            return TokenizedCaptions.of([image.tokens or () for image in part], tuple)
        tokenizer = create_tokenizer("words" if self.tokenizer == "karpathy" else self.tokenizer)
        return TokenizedCaptions.of([image.captions for image in part], tokenizer)

    def _lacks_tokens(self, images: Sequence[CaptionedImage]) -> bool:
        """Return whether the file's tokens are asked for and some are missing."""
        return self.tokenizer == "karpathy" and any(image.tokens is None for image in images)


@dataclass(frozen=True, eq=False)
class RegionSource:
    """The source of the regions of captioned images: a feature store, or the images themselves and an extractor.

    captions: a function that returns images of a split with their regions; it raises DataError where some have none.
    The other fields are those of `DataModule`; feature_dim is 0 where it is known in training only.
    """

    captions: Callable[[Sequence[CaptionedImage]], CaptionDataset]
    feature_dim: int
    has_boxes: bool
    backbone: Backbone | None = None

    @staticmethod
    def stored(store: FeatureStore) -> RegionSource:
        """Return the regions of a feature store."""
        return RegionSource(partial(stored_captions, store=store), store.feature_dim, store.has_boxes)


class KarpathyData(CaptionedData):
    """Annotated images and a feature store that has them by id or by file name."""

    kind: Literal["karpathy"] = "karpathy"
    annotations: Path
    """Karpathy's dataset_*.json, COCO's captions_*.json or a folder of them, a .csv, .tsv or .jsonl with file, caption
    and split, Flickr's own files, .gz of any, or a folder of images with a text file of captions beside each."""
    features: Path
    """A store made by `legenda extract` or `legenda convert`, or any that the latter reads."""
    restval: Restval = "train"
    """Whether Karpathy's restval images are part of train or a separate split."""
    lists: Path | None = None
    """A folder of lists of the images of each split, such as val.txt, for annotations without splits."""
    file_column: str | None = None
    """The column or key of a table that names the image; by default the usual ones: file, image, file_name, path..."""
    caption_column: str | None = None
    """The column or key of a caption or a list of them; by default caption, captions, text, sentence, prompt..."""
    split_column: str | None = None
    """The column or key of train, val or test; by default split or set."""
    sizes: Path | None = None
    """COCO's annotations with the sizes of the images, for stores with boxes in pixels that lack them."""

    @property
    def source(self) -> str:
        """The annotations."""
        return str(self.annotations)

    def open_store(self) -> FeatureStore:
        """Return the features."""
        return open_features(self.features, sizes=self.sizes)

    def open_regions(self, *, train: bool = False) -> RegionSource:
        """Return the features; those of a training are checked."""
        store = self.open_store()
        if train:
            _spot_check(store)
        return RegionSource.stored(store)

    def read_images(self) -> list[CaptionedImage]:
        """Read the annotations."""
        columns = Columns(file=self.file_column, caption=self.caption_column, split=self.split_column)
        return read_annotations(self.annotations, lists=self.lists, restval=self.restval, columns=columns)


def stored_captions(images: Sequence[CaptionedImage], store: FeatureStore) -> CaptionDataset:
    """Return images with the features that a store has of them; raise DataError, naming an image without any."""
    ids, captions = tuple(image.id for image in images), tuple(image.captions for image in images)
    read = ConcatFeatureStore((store,)).reader(ids, [image.file for image in images])
    return CaptionDataset(ids, captions, read, str(store.path), store.extractor)


def _spot_check(store: FeatureStore) -> None:
    """Read a small store completely and a sample of a large one; other images are validated when they are read."""
    step = max(1, len(store) // _MAX_CHECKED_IMAGES)
    for first in range(0, len(store), 32 * step):
        store.read(range(first, min(first + 32 * step, len(store)), step))


@dataclass(frozen=True, eq=False)
class EncodedCaptions:
    """The captions of a split as ids: bos, tokens, eos, then -1 as padding; `counts` of them belong to each image."""

    tokens: Int[Tensor, "B R L"]
    counts: Int[Tensor, " B"]

    @staticmethod
    def of(split: CaptionDataset, vocabulary: Vocabulary, max_caption_length: int) -> EncodedCaptions:
        """Return captions cut at `max_caption_length` words, without those that have no tokens."""
        import torch

        tokenized, images = split.tokenized, len(split)
        lengths = np.diff(tokenized.offsets)
        owner = np.repeat(np.arange(images), np.diff(tokenized.image_offsets))
        nonempty = lengths > 0
        owner, starts = owner[nonempty], tokenized.offsets[:-1][nonempty]
        lengths = lengths[nonempty].clip(max=max_caption_length)
        counts = np.bincount(owner, minlength=images)
        if not counts.all():
            name = split.ids[int(counts.argmin())]
            raise DataError(f"image {name} has no caption with a word in it; take it out of the data")
        row = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)  # index within the image
        longest = int(lengths.max(initial=0))
        rows = np.full((images, int(counts.max(initial=0)), longest + 2), -1, np.int32)
        rows[owner, row, 0] = vocabulary.bos_token_id
        rows[owner, row, lengths + 1] = vocabulary.eos_token_id
        ids = np.array(vocabulary.encode(tokenized.words), np.int32)
        for position in range(longest):
            longer = lengths > position
            rows[owner[longer], row[longer], position + 1] = ids[tokenized.token_ids[starts[longer] + position]]
        return EncodedCaptions(torch.from_numpy(rows), torch.from_numpy(counts))

    def rows(self, images: np.ndarray, rows: int, generator: torch.Generator) -> Int[Tensor, "B K T"]:
        """Return `rows` captions of each image, all different while there are enough, padded with -1 to the longest."""
        import torch

        chosen = torch.from_numpy(images)
        R = self.tokens.shape[1]
        draw = torch.rand(len(images), R, generator=generator)
        draw[torch.arange(R) >= self.counts[chosen].unsqueeze(1)] = 2.0
        order = draw.argsort(dim=1)
        slot = torch.arange(rows).unsqueeze(0) % self.counts[chosen].unsqueeze(1)
        picked = self.tokens[chosen.unsqueeze(1), order.gather(1, slot)].long()
        return picked[:, :, : int((picked >= 0).sum(dim=-1).max())]
