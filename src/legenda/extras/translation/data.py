"""Parallel text of two languages: files, and number words of two invented languages."""

from __future__ import annotations

import functools
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np

from legenda.config import NonNegativeInt, PositiveInt
from legenda.data.registry import Data, SplitSizes, choose_split
from legenda.errors import DataError
from legenda.extras.translation.subwords import (
    BPETokenizer,
    SentencePieceTokenizer,
    SubwordTokenizer,
    build_subword_vocabulary,
)
from legenda.io import read_bytes
from legenda.terminal import counted
from legenda.text import Vocabulary

__all__ = ["ParallelData", "ParallelDataset", "read_parallel"]

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
    def lines(self) -> list[str]:
        """Return the sentences of both languages, from which subwords and vocabularies are learned."""
        return [*self.sentences, *chain.from_iterable(self.references)]

    @property
    def printed(self) -> dict[str, tuple[str, ...]]:
        """Return the references by identity as running text, which is what translations are compared with."""
        references = dict(zip(self.ids, self.references, strict=True))
        if not self.tokenized:
            return references
        pieces = BPETokenizer()
        return {name: tuple(pieces.detokenize(line.split()) for line in lines) for name, lines in references.items()}

    def at(self, positions: Sequence[int]) -> ParallelDataset:
        """Return the pairs at some positions."""
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


class ParallelData(Data[ParallelDataset]):
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
    """Subwords of both languages together, learned from the training text; 0 learns none: the text is tokenized
    already, and its words are whole or have their "@@ " joints."""
    merges: Path | None = None
    """BPE merges for text that is tokenized already, in place of subwords that are learned."""
    max_length: PositiveInt = 100
    """Subwords of the longest sentence; pairs with a longer one are left out of training, and no translation is
    longer."""

    def open(self, progress: Callable[[str], None]) -> ParallelDataModule:
        """Read the text, without pairs that are too long to train on, and learn the subwords."""
        progress(f"reading {self.folder}")
        train, validation = self.split("train"), self.split("val")
        lines = train.lines
        if self.pieces and self.merges is None:
            progress(f"learning {self.pieces} subwords from {len(lines)} lines")
            subwords = SentencePieceTokenizer.train(lines, self.pieces)
            vocabulary = subwords.vocabulary()
        else:
            subwords = BPETokenizer() if self.merges is None else BPETokenizer.read(self.merges)
            vocabulary = build_subword_vocabulary(subwords, lines)
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
    """Return the sentences of a file with their translations in one or more other files, line by line.

    Raises DataError, naming the file and the line, where a line is empty or no UTF-8, or the numbers of lines differ.
    """
    sentences = _lines(source)
    translations = [_lines(path) for path in references]
    for path, lines in zip(references, translations, strict=True):
        if len(lines) != len(sentences):
            raise DataError(f"{source} has {counted(len(sentences), 'lines')} but {path} has {len(lines)}; {_HINT}")
    numbers = tuple(map(str, range(1, len(sentences) + 1)))
    return ParallelDataset(numbers, tuple(sentences), tuple(zip(*translations, strict=True)), str(source))


def _file(folder: Path, name: str) -> Path:
    """Return the file of that name, or its gzipped version where only that exists."""
    plain, zipped = folder / name, folder / f"{name}.gz"
    return zipped if zipped.exists() and not plain.exists() else plain


def _lines(path: Path) -> Sequence[str]:
    """Return the lines of a file, each without the spaces around it."""
    lines = []
    content = read_bytes(path, _HINT).removeprefix(BOM_UTF8).removesuffix(b"\n")
    for number, line in enumerate(content.split(b"\n"), start=1):  # WMT's lines hold carriage returns
        try:
            lines.append(line.decode().strip())
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text in line {number}; correct or convert the file") from error
        if not lines[-1]:
            raise DataError(f"{path} is empty in line {number}; take that line out of all files of the split")
    return lines


_LARGEST = 999_999

_DIGITS = ("", "lam", "sor", "mir", "tek", "fel", "gov", "nai", "pru", "zin")
_UNITS = ("hun", "den", "")
_THOUSAND, _NOTHING = "tus", "nol"

_ONES = ("", "osk", "ebra", "ushe", "alm", "drelo", "ipsi", "ontu", "yarn", "ewi")
_TENS = ("", "oskri", "ebri", "ushti", "almri", "drel", "ipri", "onri", "yarri", "ewri")
_RANKS = ("", "ung", "wem")
_EMPTY = "vaal"

_POOLS = {"train": (200_000, _LARGEST + 1), "val": (100_000, 200_000), "test": (0, 100_000)}
"""Which part of the shuffled numbers each split is taken from."""


class NumberWordsData(SplitSizes[ParallelDataset]):
    """Numbers in words of two invented languages: a small translation task that depends on the order of words.

    Tavil counts in thousands and starts with the largest part: every digit that is not 0 is a word, followed by a word
    for its unit. Orrish counts in hundreds and starts with the smallest part; within a part the ones come before the
    tens, which are words of their own, and every part but the smallest begins with its rank. 305,021 is "mir hun fel
    tus sor den lam" in Tavil, that is "3 hundred 5 thousand 2 ten 1", and "osk ebri ung drel wem ushti" in Orrish: "1,
    20, rank one, 50, rank two, 30".

    The same words in another order are another number, so that a translator without positions must fail.

    Fields: how many numbers of each split, and the seed that shuffles them.
    """

    kind: Literal["number_words"] = "number_words"
    train: PositiveInt = 20_000
    validation: PositiveInt = 300
    test: PositiveInt = 1_000

    def open(self, progress: Callable[[str], None]) -> ParallelDataModule:
        """Spell the numbers; every word is a piece."""
        progress(f"spelling {counted(self.train, 'numbers')} for training and {self.validation} for validation")
        train, validation = self.split("train"), self.split("val")
        words = BPETokenizer()
        return ParallelDataModule(train, validation, words, build_subword_vocabulary(words, train.lines), max_length=16)

    def split(self, name: str) -> ParallelDataset:
        """Return the numbers of a split, which are their ids; no two splits of a seed share one."""
        first, last = choose_split(_POOLS, name, "number words")
        numbers = _shuffled(self.seed)[first : first + self.size(name, "number words", last - first)].tolist()
        return ParallelDataset(
            tuple(map(str, numbers)),
            tuple(map(tavil, numbers)),
            tuple((orrish(number),) for number in numbers),
            "number words",
            tokenized=True,
        )


def tavil(number: int) -> str:
    """Return a number of 0 to _LARGEST in Tavil."""
    thousands, rest = divmod(number, 1000)
    words = [*_spell(thousands), _THOUSAND] if thousands else []
    return " ".join([*words, *_spell(rest)]) or _NOTHING


def orrish(number: int) -> str:
    """Return a number of 0 to _LARGEST in Orrish."""
    words: list[str] = []
    for rank in _RANKS:
        number, part = divmod(number, 100)
        tens, ones = divmod(part, 10)
        if part:
            words += [rank, _ONES[ones], _TENS[tens]]
    return " ".join(filter(None, words)) or _EMPTY


def _spell(part: int) -> list[str]:
    """Return the digits of 0 to 999 with their units, without zeros."""
    digits = part // 100, part // 10 % 10, part % 10
    pairs = ((_DIGITS[digit], unit) for digit, unit in zip(digits, _UNITS, strict=True) if digit)
    return [word for pair in pairs for word in pair if word]


@functools.lru_cache(maxsize=2)
def _shuffled(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(_LARGEST + 1)
