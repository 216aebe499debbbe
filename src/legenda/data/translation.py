"""Sentences with their translations, from text files with one sentence per line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from legenda.config import Config, NonNegativeInt, PositiveInt
from legenda.data.splits import choose_split
from legenda.errors import DataError
from legenda.io import read_bytes
from legenda.text import Vocabulary
from legenda.text.subwords import BPETokenizer, SentencePieceTokenizer, SubwordTokenizer, build_subword_vocabulary

_HINT = "name text files of the same number of lines, gzipped (.gz) or not"


@dataclass(frozen=True, eq=False)
class ParallelDataset:
    """Sentences of one split, each with its human translations.

    ids: their line numbers in the file from 1, or other unique names. source: what they were read from, for
    messages. tokenized: whether the text is cut into tokens already, with spaces or "@@ " between them.
    """

    ids: tuple[str, ...]
    sentences: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]
    source: str
    tokenized: bool = False

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def printed(self) -> dict[str, tuple[str, ...]]:
        """Return the references by identity as running text, which is what translations are compared with."""
        references = dict(zip(self.ids, self.references, strict=True))
        if not self.tokenized:
            return references
        pieces = BPETokenizer()
        return {name: tuple(pieces.detokenize(text.split()) for text in texts) for name, texts in references.items()}

    def at(self, positions: Sequence[int]) -> ParallelDataset:
        """Some of the pairs."""
        columns = {name: getattr(self, name) for name in ("ids", "sentences", "references")}
        return replace(self, **{name: tuple(map(column.__getitem__, positions)) for name, column in columns.items()})


@dataclass(frozen=True, eq=False)
class ParallelDataModule:
    """A translation data set in use: its splits, the pieces of both languages, and the longest sentence in pieces."""

    train: ParallelDataset
    validation: ParallelDataset
    subwords: SubwordTokenizer
    vocabulary: Vocabulary
    max_length: int


class ParallelData(Config):
    """Text files `NAME.LANGUAGE` in one folder, with or without .gz, whose lines belong together by their numbers.

    It is the layout of Multi30k and of WMT's sets.
    """

    kind: Literal["parallel"] = "parallel"
    folder: Path
    source: str = "en"
    """The end of the names of the files that are translated."""
    target: str = "de"
    """The end of the names of their translations."""
    train: str = "train"
    validation: str = "val"
    test: str = "test_2016_flickr"
    pieces: NonNegativeInt = 8000
    """SubwordTokenizer of both languages together, learned from the training text; 0 learns none: the text is tokenized
    already, and its words are whole or have their "@@ " joints."""
    merges: Path | None = None
    """BPE merges for text that is tokenized already, in place of subwords that are learned."""
    max_length: PositiveInt = 100
    """SubwordTokenizer of the longest sentence; pairs with a longer one are left out of training, and no translation is
    longer."""

    def open(self, progress: Callable[[str], None]) -> ParallelDataModule:
        """Read the training and validation text, and learns the subwords."""
        progress(f"reading {self.folder}")
        train, validation = self.split("train"), self.split("val")
        lines = [*train.sentences, *(line for lines in train.references for line in lines)]
        if self.pieces and self.merges is None:
            progress(f"learning {self.pieces} subwords from {len(lines)} lines")
            learned = SentencePieceTokenizer.train(lines, self.pieces)
            return self._opened(train, validation, learned, learned.vocabulary())
        subwords = BPETokenizer() if self.merges is None else BPETokenizer.read(self.merges)
        return self._opened(train, validation, subwords, build_subword_vocabulary(subwords, lines))

    def _opened(
        self, train: ParallelDataset, validation: ParallelDataset, subwords: SubwordTokenizer, vocabulary: Vocabulary
    ) -> ParallelDataModule:
        """Return the data without the pairs that are too long to train on."""
        pairs = zip(train.sentences, train.references, strict=True)
        fitting = [
            position
            for position, (sentence, references) in enumerate(pairs)
            if all(len(subwords.tokenize(text)) <= self.max_length for text in (sentence, *references))
        ]
        if not fitting:
            raise DataError(f"no pair of {train.source} is within data.max_length={self.max_length} subwords; raise it")
        return ParallelDataModule(train.at(fitting), validation, subwords, vocabulary, self.max_length)

    def split(self, name: str) -> ParallelDataset:
        """Return the pairs of a split: train, val or test."""
        names = {"train": self.train, "val": self.validation, "test": self.test}
        stem = choose_split(names, name, self.folder)
        files = [_file(self.folder, f"{stem}.{language}") for language in (self.source, self.target)]
        return replace(read_parallel(files[0], files[1]), tokenized=self.pieces == 0 or self.merges is not None)


def read_parallel(source: Path, *references: Path) -> ParallelDataset:
    """Sentences of one file with their translations in one or more others, line by line.

    Raises DataError, naming the file and the line, where a line is empty or no UTF-8, or the numbers of lines differ.
    """
    sentences = _lines(source)
    translations = [_lines(path) for path in references]
    for path, lines in zip(references, translations, strict=True):
        if len(lines) != len(sentences):
            raise DataError(f"{source} has {len(sentences)} lines but {path} has {len(lines)}; {_HINT}")
    numbers = tuple(map(str, range(1, len(sentences) + 1)))
    return ParallelDataset(numbers, tuple(sentences), tuple(zip(*translations, strict=True)), str(source))


def _file(folder: Path, name: str) -> Path:
    """Return the file of that name, or its gzipped version where only that exists."""
    plain, zipped = folder / name, folder / f"{name}.gz"
    return zipped if zipped.exists() and not plain.exists() else plain


def _lines(path: Path) -> Sequence[str]:
    """Return the lines of a file, each without the spaces around it."""
    lines = []
    for number, line in enumerate(read_bytes(path, _HINT).removesuffix(b"\n").split(b"\n"), start=1):
        try:
            lines.append(line.decode().strip())
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text in line {number}; correct or convert the file") from error
        if not lines[-1]:
            raise DataError(f"{path} is empty in line {number}; take that line out of all files of the split")
    return lines
