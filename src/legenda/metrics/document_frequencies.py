"""In how many documents n-grams occur: what CIDEr weighs them by."""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from legenda.errors import UserError
from legenda.io import atomic_write, verified
from legenda.metrics.ngrams import (
    LONGEST,
    MOST_TOKENS,
    Captions,
    Floats,
    Integers,
    NgramTable,
    count_documents,
    number,
)

_FORMAT = "legenda document frequencies 1"
_HINT = "give a file that DocumentFrequencies.save wrote"


@dataclass(frozen=True)
class DocumentFrequencies:
    """In how many of `documents` each n-gram occurs.

    A document is all the references of one image, except where a code lets each caption be one. Tokens are words or
    ids: `words` numbers them, `table` the n-grams of those numbers, and `counts[n - 1]` holds the frequencies.
    """

    words: dict[Hashable, int]
    table: NgramTable
    counts: tuple[Integers, ...]
    documents: int

    @classmethod
    def from_references(cls, references: Iterable[Sequence[Sequence[Hashable]]]) -> Self:
        """Counts the documents of tokenized references, given image by image.

        For every caption to be a document, as in MD-SAN's and M2's released code, give each in a group of its own.
        """
        words: dict[Hashable, int] = {}
        sizes: list[int] = []

        def captions() -> Iterable[Sequence[Hashable]]:
            for group in references:
                sizes.append(len(group))
                yield from group

        read = Captions.read(captions(), words)
        documents = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        return cls(words, *count_all(read, documents), len(sizes))

    @classmethod
    def from_counts(cls, counts: Mapping[Sequence[Hashable], int], documents: int) -> Self:
        """Takes over a table of n-grams, such as one that a released code has stored."""
        words: dict[Hashable, int] = {}
        read = Captions.read(counts, words)
        if (read.lengths > LONGEST).any():
            raise UserError(f"The table has n-grams of more than {LONGEST} tokens; leave them out")
        values = np.fromiter(counts.values(), np.int64, len(counts))
        keys, arrays = [], []
        for length, each in enumerate(number(read), start=1):
            whole = read.lengths[each.owners] == length
            keys.append(each.keys)
            arrays.append(np.zeros(len(each.keys), np.int64))
            arrays[-1][each.numbers[whole]] = values[each.owners[whole]]
        return cls(words, NgramTable(tuple(keys)), tuple(arrays), documents)

    def counts_of(self, table: NgramTable, words: Mapping[Hashable, int]) -> list[Integers]:
        """The frequencies of another table's n-grams, given its numbers of tokens; 0 for those that are not here."""
        here = np.fromiter((self.words.get(word, -1) for word in words), np.int64, len(words))
        return [
            np.where(places >= 0, counts[places], 0) if len(counts) else np.zeros(len(places), np.int64)
            for counts, places in zip(self.counts, self.table.translate(table, here), strict=True)
        ]

    def weight(self, ngram: Sequence[Hashable]) -> float:
        """The inverse document frequency of one n-gram, log(documents / occurrences)."""
        place, known = 0, np.zeros(1, np.int64)
        for length, token in enumerate(ngram, start=1):
            known = self.table.find(length, known, np.array([self.words.get(token, MOST_TOKENS)]))
            place = int(known[0])
        count = self.counts[len(ngram) - 1][[place]] if place >= 0 else np.zeros(1, np.int64)
        return float(inverse_document_frequencies(count, self.documents)[0])

    def save(self, path: str | Path) -> None:
        """Writes a safetensors file. Tokens must be text or whole numbers."""
        from safetensors.numpy import save_file

        arrays = {f"keys.{n}": keys for n, keys in enumerate(self.table.keys, start=1)}
        arrays |= {f"counts.{n}": counts for n, counts in enumerate(self.counts, start=1)}
        notes = {"format": _FORMAT, "documents": str(self.documents), "words": as_json(self.words, "tokens")}
        with atomic_write(path) as partial:
            save_file(arrays, partial, notes)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` wrote. Raises UserError, naming the file, for any other."""
        arrays, notes = read_arrays(path, _FORMAT, _HINT)
        words = {word: place for place, word in enumerate(json.loads(notes["words"]))}
        keys, counts = (tuple(arrays[f"{name}.{n}"] for n in range(1, LONGEST + 1)) for name in ("keys", "counts"))
        return cls(words, NgramTable(keys), counts, int(notes["documents"]))


def as_json(names: Iterable[Hashable], what: str) -> str:
    """Names as a JSON list; UserError for names that JSON would not give back."""
    names = list(names)
    if wrong := [name for name in names if not isinstance(name, str | int)]:
        raise UserError(f"The {what} have {wrong[0]!r} among them; only text and whole numbers can be saved")
    return json.dumps(names, ensure_ascii=False)


def count_all(captions: Captions, documents: Integers) -> tuple[NgramTable, tuple[Integers, ...]]:
    """All n-grams of captions, and in how many documents each is; `documents` says to which each caption belongs."""
    keys, counts = [], []
    for each in number(captions):
        keys.append(each.keys)
        counts.append(count_documents(each.numbers, documents[each.owners], len(each.keys)))
    return NgramTable(tuple(keys)), tuple(counts)


def read_arrays(path: str | Path, form: str, hint: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and notes of a safetensors file whose note "format" is `form`; UserError names any other file."""
    from safetensors import safe_open

    def read() -> tuple[dict[str, np.ndarray], dict[str, str]]:
        with safe_open(path, "numpy") as file:
            notes = file.metadata() or {}
            if notes.get("format") != form:
                raise ValueError(f'its format is not "{form}"')
            return {name: file.get_tensor(name) for name in file.keys()}, notes  # noqa: SIM118 (the file is no mapping)

    return verified(read, path, hint)


def inverse_document_frequencies(counts: Integers, documents: int) -> Floats:
    """log(documents / occurrences) of n-grams; one that no document has counts as seen once."""
    return np.log(documents) - np.log(np.maximum(1, counts))
