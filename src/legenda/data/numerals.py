"""Numbers in words of two invented languages: a small translation task that depends on the order of words.

Tavil counts in thousands and starts with the largest part: every digit that is not 0 is a word, followed by a word for
its unit. Orrish counts in hundreds and starts with the smallest part; within a part the ones come before the
tens, which are words of their own, and every part but the smallest begins with its rank. 305,021 is "mir hun fel tus
sor den lam" in Tavil, that is "3 hundred 5 thousand 2 ten 1", and "osk ebri ung drel wem ushti" in Orrish: "1, 20, rank
one, 50, rank two, 30".

The same words in another order are another number, so that a translator without positions must fail.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal

import numpy as np

from legenda.data.splits import SplitSizes, choose_split
from legenda.data.translation import ParallelDataModule, ParallelDataset
from legenda.errors import DataError
from legenda.text.subwords import BPETokenizer, build_subword_vocabulary

LARGEST = 999_999

_DIGITS = ("", "lam", "sor", "mir", "tek", "fel", "gov", "nai", "pru", "zin")
_UNITS = ("hun", "den", "")
_THOUSAND, _NOTHING = "tus", "nol"

_ONES = ("", "osk", "ebra", "ushe", "alm", "drelo", "ipsi", "ontu", "yarn", "ewi")
_TENS = ("", "oskri", "ebri", "ushti", "almri", "drel", "ipri", "onri", "yarri", "ewri")
_RANKS = ("", "ung", "wem")
_EMPTY = "vaal"

_POOLS = {"train": (200_000, LARGEST + 1), "val": (100_000, 200_000), "test": (0, 100_000)}
"""Which part of the shuffled numbers each split is taken from."""


class NumberWordsData(SplitSizes):
    """How many numbers of each split, and the seed that shuffles them."""

    kind: Literal["number_words"] = "number_words"
    train: int = 20_000
    validation: int = 300
    test: int = 1_000

    def open(self, progress: Callable[[str], None]) -> ParallelDataModule:
        """Spell the numbers; every word is a piece."""
        progress(f"spelling {self.train} numbers for training and {self.validation} for validation")
        train, validation = self.split("train"), self.split("val")
        words = BPETokenizer()
        lines = [*train.sentences, *(line for lines in train.references for line in lines)]
        return ParallelDataModule(train, validation, words, build_subword_vocabulary(words, lines), max_length=16)

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
    """Return a number of 0 to LARGEST in Tavil."""
    thousands, rest = divmod(_checked(number), 1000)
    words = [*_spell(thousands), _THOUSAND] if thousands else []
    return " ".join([*words, *_spell(rest)]) or _NOTHING


def orrish(number: int) -> str:
    """Return a number of 0 to LARGEST in Orrish."""
    words: list[str] = []
    left = _checked(number)
    for rank in _RANKS:
        left, part = divmod(left, 100)
        tens, ones = divmod(part, 10)
        if part:
            words += [rank, _ONES[ones], _TENS[tens]]
    return " ".join(filter(None, words)) or _EMPTY


def _spell(part: int) -> list[str]:
    """Return the digits of 0 to 999 with their units, without zeros."""
    digits = part // 100, part // 10 % 10, part % 10
    pairs = ((_DIGITS[digit], unit) for digit, unit in zip(digits, _UNITS, strict=True) if digit)
    return [word for pair in pairs for word in pair if word]


def _checked(number: int) -> int:
    if not 0 <= number <= LARGEST:
        raise DataError(f"number words go from 0 to {LARGEST}, not to {number}")
    return number


@functools.lru_cache(maxsize=2)
def _shuffled(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(LARGEST + 1)
