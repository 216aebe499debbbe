"""Base of questions and expressions: data sets with stored regions, word vectors in GloVe's layout, and models."""

from __future__ import annotations

import gzip
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from legenda.config import Count
from legenda.data.registry import Data
from legenda.errors import ConfigError, DataError
from legenda.extras.vqa.model import CoAttentionModel
from legenda.extras.vqa.text import AnswerVocabulary, QuestionVocabulary, encode_tokens
from legenda.features.base import ConcatFeatureStore, RegionReader
from legenda.features.readers import open_stores
from legenda.images.extractor import ExtractorIdentity
from legenda.io import verified
from legenda.regions import Regions
from legenda.run_folder import VOCABULARY
from legenda.tasks.base import Objective, P
from legenda.tasks.reporting import ReportedTask

_BATCH_SIZE = 100
_LITERALS = {"<pad>": "PAD", "<unk>": "UNK", "<cls>": "CLS"}
"""The words that MCAN's code looks up for its special words."""
_MAX_LINE = 1 << 20
"""Characters of a line."""


class Example(Protocol):
    """A question or an expression: its `id`, unique in the split, its `image` as feature stores name it, or its number
    in COCO, and the `tokens` of its words.
    """

    @property
    def id(self) -> str: ...

    @property
    def image(self) -> str: ...

    @property
    def tokens(self) -> Sequence[str]: ...


E = TypeVar("E", bound=Example)


@dataclass(frozen=True, eq=False)
class CoAttentionDataset(Generic[E, P]):
    """One split of questions or expressions, and a reader of the regions of their images.

    read: from positions in this split `(B,)` to the Regions of the images of those examples.
    source: what the regions are read from, for messages. extractor: the extractor of the regions.
    """

    examples: tuple[E, ...]
    read: RegionReader
    source: str
    extractor: ExtractorIdentity

    @classmethod
    def stored(cls, examples: Sequence[E], store: ConcatFeatureStore) -> Self:
        """Return examples about images whose features are in stores."""
        read = store.reader([example.image for example in examples])
        return cls(tuple(examples), read, store.source, store.extractor)

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Return the examples' ids, all different."""
        return tuple(example.id for example in self.examples)

    def select(self, ids: Collection[str]) -> Self:
        """Return only the examples of these ids, to be scored."""
        return replace(self, examples=tuple(example for example in self.examples if example.id in ids))

    def score(self, predictions: Mapping[str, P]) -> dict[str, float | None]:
        """Return percentages over all examples."""
        raise NotImplementedError


D = TypeVar("D", bound=CoAttentionDataset)
C = TypeVar("C", bound=CoAttentionModel)


@dataclass(frozen=True, eq=False)
class CoAttentionDataModule(Generic[D]):
    """A data set of questions or expressions in use.

    max_text_length: the length of every row of words. answers: those of questions. vectors: first vectors of the words
    `(V, E)`, or None.
    """

    train: D
    validation: D
    vocabulary: QuestionVocabulary
    feature_dim: int
    max_text_length: int
    has_boxes: bool = True
    answers: AnswerVocabulary | None = None
    vectors: np.ndarray | None = None


class StoredData(Data[D]):
    """Questions or expressions in files, and feature stores of their images."""

    features: tuple[Path, ...]
    """Stores made by `legenda extract` or `convert`, or any that the latter reads; MCAN's folders of .npz are."""
    vectors: Path | None = None
    """Initial word vectors, a text file in GloVe's layout; random if None."""
    max_text_length: Count = 14
    """Words of a question or an expression that are read."""

    dataset: ClassVar[type[CoAttentionDataset]]

    def load(
        self,
        train: Sequence[Example],
        validation: Sequence[Example],
        vocabulary: QuestionVocabulary,
        answers: AnswerVocabulary | None = None,
    ) -> CoAttentionDataModule:
        """Return the examples with the features of their images."""
        store = open_stores(self.features)
        return CoAttentionDataModule(
            self.dataset.stored(train, store),
            self.dataset.stored(validation, store),
            vocabulary,
            store.feature_dim,
            self.max_text_length,
            store.has_boxes,
            answers,
            None if self.vectors is None else read_word_vectors(self.vectors, vocabulary.tokens),
        )


def words_of(examples: Iterable[Example]) -> QuestionVocabulary:
    """Return the vocabulary of examples."""
    return QuestionVocabulary.build(example.tokens for example in examples)


class CoAttentionObjective(Objective[D, C]):
    """An objective on the words of questions or expressions."""

    @cached_property
    def tokens(self) -> Int[Tensor, "E L"]:
        """The words of the split's examples as ids, padded with 0."""
        words, config = (example.tokens for example in self.split.examples), self.model.config
        return encode_tokens(words, self.model.require_vocabulary(), config.max_text_length)


def read_word_vectors(path: Path, words: Sequence[str]) -> np.ndarray:
    """Return the vectors `(V, E)` float32 of `words`, from a text file in GloVe's layout, perhaps gzipped.

    A line is a word and its E numbers; a first line of two numbers, as word2vec writes it, is passed over. Words that
    the file lacks get zeros; special words get the vectors of PAD, UNK and CLS, as in MCAN. Raises DataError, naming
    the file and the line, where a line has another number of numbers, and where no word of `words` is in the file.
    """
    hint = "give a word and its numbers on every line, as GloVe does"
    wanted = {_LITERALS.get(word, word): place for place, word in enumerate(words)}

    def read() -> np.ndarray | None:
        vectors: np.ndarray | None = None
        for number, word, values in _vector_lines(path):
            if vectors is None:
                vectors = np.zeros((len(words), len(values)), np.float32)
            if len(values) != vectors.shape[1]:
                raise ValueError(f"line {number} has {len(values)} numbers, those before it {vectors.shape[1]}")
            if word in wanted:
                try:
                    vectors[wanted[word]] = [float(value) for value in values]
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from error
                if not np.isfinite(vectors[wanted[word]]).all():
                    raise ValueError(f"line {number} holds numbers that are NaN or infinite")
        return vectors

    vectors = verified(read, path, hint)
    if vectors is None or not vectors.any():
        raise DataError(f"{path} holds no vector of any word of the questions; {hint}")
    return vectors


def _vector_lines(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield number, word and values, as text, of each line."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="\n") as file:
        width = 0
        for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE), ""), start=1):
            parts = line.rstrip().split(" ")
            if number == 1 and len(parts) == 2:
                continue
            width = width or len(parts) - 1
            cut = max(1, len(parts) - width)  # a few words of GloVe's largest file hold spaces
            yield number, " ".join(parts[:cut]), parts[cut:]


class CoAttentionTask(ReportedTask[D, C, P]):
    """A task on questions or expressions about images."""

    data: CoAttentionDataModule[D]  # pyrefly: ignore[bad-override-mutable-attribute]  # set once

    @torch.no_grad()
    def create_with_words(
        self, model: str, options: Mapping[str, object], init_from: Path | None, **sizes: int
    ) -> CoAttentionModel:
        """Return a new model with the sizes and the vocabulary of the data, or with the vocabulary of `init_from`.

        Its word embeddings start from the data's word vectors, if given; raise ConfigError where their width differs.
        """
        data = self.data
        vocabulary = data.vocabulary if init_from is None else QuestionVocabulary.load(init_from / VOCABULARY)
        sizes |= {"vocab_size": len(vocabulary), "feature_dim": data.feature_dim}
        created = self.build_model(model, {**options, **sizes, "max_text_length": data.max_text_length})
        assert isinstance(created, CoAttentionModel)
        created.vocabulary = vocabulary
        if init_from is None and data.vectors is not None:
            embedding, width = created.backbone.embedding.weight, data.vectors.shape[1]
            if width != embedding.shape[1]:
                raise ConfigError(
                    f"the word vectors have {width} dimensions but {created.name} takes {embedding.shape[1]}; give "
                    f"others with data.vectors=FILE, or set model.word_dim={width}"
                )
            embedding.copy_(torch.from_numpy(data.vectors))
        return created

    @staticmethod
    def score(predictions: Mapping[str, P], split: D) -> dict[str, float | None]:
        """Return percentages over the predicted examples."""
        return split.select(predictions.keys()).score(predictions)


def iter_batches(
    model: CoAttentionModel, split: CoAttentionDataset[E, P], indices: np.ndarray
) -> Iterator[tuple[list[E], Regions]]:
    """Yield batches of the examples at these indices, each with its regions on the model's device."""
    device = next(model.parameters()).device
    for batch in np.array_split(indices, -(-len(indices) // _BATCH_SIZE)) if len(indices) else ():
        yield [split.examples[index] for index in batch], split.read(batch).to(device)
