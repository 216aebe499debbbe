"""Vocabularies: the tokens of captions, each with its id."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from pathlib import Path
from typing import ClassVar, Self
from unicodedata import category

from legenda.errors import ConfigError, DataError
from legenda.io import read_text, write_text

END, UNKNOWN, BEGIN, PAD = "<end>", "<unk>", "<begin>", "<pad>"


@dataclass(frozen=True)
class TokenList:
    """Distinct strings in the order of their ids: what all vocabularies share.

    Raise DataError, with the line at fault, for entries that a subclass does not allow.
    """

    tokens: tuple[str, ...]

    kind: ClassVar[str]
    """The name of the vocabulary in error messages."""
    specials: ClassVar[tuple[str, ...]]
    """Entries with a meaning of their own, to which no text is encoded."""

    def __post_init__(self) -> None:
        if problem := self._find_problem(self.tokens):
            raise DataError(f"the entries are not {self.kind}: {problem}; create one with {type(self).__name__}.build")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote; raise DataError with the file and the line at fault."""
        hint = f"give the file of a run folder that holds {cls.kind}"
        tokens = tuple(map(_unescape, read_text(path, hint).removesuffix("\n").split("\n")))
        if problem := cls._find_problem(tokens):
            raise DataError(f"{path} is not {cls.kind}: {problem}; {hint}")
        return cls(tokens)

    def save(self, path: str | Path) -> None:
        r"""Write one entry a line in UTF-8, entry i on line i + 1, with \n for its line feeds and \\ for \."""
        write_text(path, "\n".join(map(_escape, self.tokens)) + "\n")

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each entry that is not special."""
        return {token: number for number, token in enumerate(self.tokens) if token not in self.specials}

    @cached_property
    def unk_token_id(self) -> int | None:
        """The id of tokens outside the vocabulary, or None where there is no "<unk>"."""
        return self.tokens.index(UNKNOWN) if UNKNOWN in self.tokens else None

    @classmethod
    def _is_word(cls, token: str) -> bool:
        """Return whether a token may be built into the list."""
        return token not in cls.specials and not _has_control(token)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Return the id of each token, without EOS; text equal to a special token is unknown.

        Raise DataError for an unknown token where the vocabulary has no "<unk>".
        """
        ids = []
        for token in tokens:
            number = self.ids.get(token, self.unk_token_id)
            if number is None:
                raise DataError(f"{token!r} is not in the vocabulary, which has no {UNKNOWN}; add one of the two")
            ids.append(number)
        return ids

    @classmethod
    def _find_problem(cls, tokens: Sequence[str]) -> str | None:
        raise NotImplementedError


class Vocabulary(TokenList):
    """The tokens of captions in the order of their ids.

    Special tokens are found by name: "<end>" (EOS), which is required, "<unk>", "<begin>" (BOS) and "<pad>". EOS also
    serves as BOS and padding where these are absent. `build` puts "<end>" and "<unk>" first; vocabularies of released
    codes may have the special tokens at any index.

    A token may be white space, line feeds included, as in MD-SAN's release. Raise DataError when "<end>" is missing, or
    a token is empty, contains another control character or occurs twice.
    """

    kind = "a vocabulary"
    specials = (END, UNKNOWN, BEGIN, PAD)

    @classmethod
    def build(cls, captions: Iterable[Sequence[str]], *, min_count: int = 5) -> Self:
        """Return the tokens that occur at least `min_count` times in tokenized captions.

        They are sorted by descending frequency, then alphabetically.
        """
        return cls.from_counts(Counter(token for caption in captions for token in caption), min_count=min_count)

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, int], *, min_count: int = 5, special_tokens: Sequence[str] = (END, UNKNOWN)
    ) -> Self:
        """Return the vocabulary that `build` makes of captions in which each token occurs so many times.

        special_tokens: the first entries; raise ConfigError for one that is not special, and without "<end>".
        """
        if END not in special_tokens or not set(special_tokens) <= set(cls.specials):
            known = ", ".join(cls.specials)
            raise ConfigError(f"special_tokens must contain {END} and be among {known}, not {list(special_tokens)}")
        frequent = (token for token, count in counts.items() if count >= min_count and token and cls._is_word(token))
        return cls((*special_tokens, *sorted(frequent, key=lambda token: (-counts[token], token))))

    @cached_property
    def eos_token_id(self) -> int:
        """The id that ends a caption."""
        return self.tokens.index(END)

    @cached_property
    def bos_token_id(self) -> int:
        """The id that begins a caption: that of "<begin>", or else of "<end>"."""
        return self.tokens.index(BEGIN) if BEGIN in self.tokens else self.eos_token_id

    def words(self, ids: Iterable[int]) -> tuple[str, ...]:
        """Return the tokens before the first EOS, one for each id, with spaces in place of line feeds.

        A word may contain white space, as "3\\u00a01/2" does. Raise DataError for an id out of range.
        """
        tokens = []
        for number in map(index, ids):
            if number == self.eos_token_id:
                break
            if not 0 <= number < len(self.tokens):
                raise DataError(
                    f"id {number} is out of range for a vocabulary of {len(self)} tokens; use the model's vocabulary"
                )
            tokens.append(self.tokens[number].replace("\n", " "))
        return tuple(tokens)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the words before the first EOS, joined by spaces; raise DataError for an id out of range."""
        return " ".join(self.words(ids))

    @classmethod
    def _find_problem(cls, tokens: Sequence[str]) -> str | None:
        if END not in tokens:
            return f"no line is {END}"
        return invalid_line(tokens, feeds=True) or repeated_line(tokens)


def _escape(token: str) -> str:
    return token.replace("\\", r"\\").replace("\n", r"\n")


def _unescape(line: str) -> str:
    """Return the entry of a line; a backslash that `_escape` has not written, as in other programs' files, stays."""
    return re.sub(r"\\([n\\])", lambda match: "\n" if match[1] == "n" else "\\", line) if "\\" in line else line


def invalid_line(tokens: Sequence[str], *, empty: bool = False, spaces: bool = True, feeds: bool = False) -> str | None:
    """Return the fault of the first entry that no file of lines can hold; None where all are valid.

    empty, spaces, feeds: whether an entry may be empty, contain white space, and contain line feeds.
    """
    for line, token in enumerate(tokens, start=1):
        if not token and not empty:
            return f"line {line} is empty"
        if not spaces and token.split() != [token]:
            return f"line {line} contains white space"
        if "\r" in token or ("\n" in token and not feeds):
            return f"the entry of line {line} contains a line break"
        if _has_control(token.replace("\n", "")):
            return f"the entry of line {line} contains a control character or half of a surrogate pair"
    return None


def _has_control(token: str) -> bool:
    """Return whether a token holds a control character other than U+0085, which a terminal may obey, or half of a
    surrogate pair, which no file takes.
    """
    return not token.isprintable() and any(category(sign) in ("Cc", "Cs") and sign != "\x85" for sign in token)


def repeated_line(tokens: Sequence[str]) -> str | None:
    """Return which entry occurs twice, and where; None where all differ."""
    first: dict[str, int] = {}
    for line, token in enumerate(tokens, start=1):
        if first.setdefault(token, line) != line:
            return f"{token!r} is on lines {first[token]} and {line}"
    return None
