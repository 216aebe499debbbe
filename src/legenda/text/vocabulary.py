"""The words a model knows, each with its id."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Self

from legenda.errors import UserError
from legenda.io import read_text, write_text

END, UNKNOWN, BEGIN, PAD = "<end>", "<unk>", "<begin>", "<pad>"
_SPECIALS = (END, UNKNOWN, BEGIN, PAD)


@dataclass(frozen=True)
class Vocabulary:
    """Words in the order of their ids.

    Special words stand among them where the model has them: "<end>", which every vocabulary has, ends a caption, and
    begins and pads it too where there is no "<begin>" or "<pad>"; "<unk>" is any word outside the vocabulary. Those
    that `build` makes begin with "<end>" and "<unk>"; the released codes have other orders, all of which fit.

    Raises UserError when "<end>" is missing, or a word is empty, holds a line break or comes twice.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if problem := _problem(self.words):
            raise UserError(f"These words are no vocabulary: {problem}; use Vocabulary.build to make one from captions")

    @classmethod
    def build(cls, captions: Iterable[Sequence[str]], *, min_count: int = 5) -> Self:
        """The words that occur at least `min_count` times in tokenized captions, the most frequent first.

        Words of equal frequency are in alphabetical order.
        """
        return cls.from_counts(Counter(token for caption in captions for token in caption), min_count=min_count)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], *, min_count: int = 5) -> Self:
        """The same, of words that have been counted already."""
        frequent = (word for word, count in counts.items() if count >= min_count and word not in _SPECIALS)
        return cls((END, UNKNOWN, *sorted(frequent, key=lambda word: (-counts[word], word))))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` wrote; UserError names the file and the line that is wrong."""
        hint = "name the vocabulary.txt of a run, which holds one word a line"
        words = tuple(read_text(path, hint).removesuffix("\n").split("\n"))
        if problem := _problem(words):
            raise UserError(f"{path} is not a vocabulary: {problem}; {hint}")
        return cls(words)

    def save(self, path: str | Path) -> None:
        """Writes one word a line in UTF-8: a word stands on line id + 1."""
        write_text(path, "\n".join(self.words) + "\n")

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def eos_token_id(self) -> int:
        """What ends a caption."""
        return self.words.index(END)

    @cached_property
    def bos_token_id(self) -> int:
        """What begins a caption: "<begin>", or the end's id where there is none."""
        return self.words.index(BEGIN) if BEGIN in self.words else self.eos_token_id

    @cached_property
    def unk_token_id(self) -> int | None:
        """What stands for any other word; None where the vocabulary has nothing for them."""
        return self.words.index(UNKNOWN) if UNKNOWN in self.words else None

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The id of each token, without an end; text that looks like a special word is unknown.

        Raises UserError for a word outside a vocabulary that has no "<unk>".
        """
        ids = []
        for token in tokens:
            number = self._ids.get(token, self.unk_token_id)
            if number is None:
                raise UserError(f"{token!r} is not in the vocabulary, which has no {UNKNOWN} for such words")
            ids.append(number)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The words before the first end, joined by spaces; UserError for an id outside the vocabulary."""
        words = []
        for number in map(index, ids):
            if number == self.eos_token_id:
                break
            if not 0 <= number < len(self.words):
                raise UserError(
                    f"Id {number} is outside a vocabulary of {len(self)} words; use the model's own vocabulary"
                )
            words.append(self.words[number])
        return " ".join(words)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words) if word not in _SPECIALS}


def _problem(words: Sequence[str]) -> str | None:
    if END not in words:
        return f"no line is {END}"
    first: dict[str, int] = {}
    for line, word in enumerate(words, start=1):
        if not word:
            return f"line {line} is empty"
        if "\n" in word or "\r" in word:
            return f"the word of line {line} holds a line break"
        if first.setdefault(word, line) != line:
            return f"{word!r} stands on lines {first[word]} and {line}"
    return None
