"""The document frequencies of n-grams, from which CIDEr computes tf-idf weights."""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from legenda.errors import DataError
from legenda.io import atomic_write, verified
from legenda.metrics.ngrams import (
    MAX_ORDER,
    TOKEN_LIMIT,
    Captions,
    Floats,
    Integers,
    NgramTable,
    count_documents,
    number_ngrams,
)

_FORMAT = "legenda document frequencies 1"
_HINT = "give a file that DocumentFrequencies.save wrote"


@dataclass(frozen=True)
class DocumentFrequencies:
    """The number of documents, out of `documents`, that contain each n-gram.

    A document consists of all references of one image, or of one caption in some released codes. Tokens are strings or
    ids. `token_ids` maps tokens to ids, `table` holds the n-grams of these ids, and `counts[n - 1]` their frequencies.
    """

    token_ids: dict[Hashable, int]
    table: NgramTable
    counts: tuple[Integers, ...]
    documents: int

    @classmethod
    def from_references(cls, references: Iterable[Sequence[Sequence[Hashable]]]) -> Self:
        """Count documents of tokenized references, given image by image.

        For captions as documents, as in the released codes of MD-SAN and M2, give each caption as a separate image.
        """
        token_ids: dict[Hashable, int] = {}
        sizes: list[int] = []

        def captions() -> Iterable[Sequence[Hashable]]:
            for group in references:
                sizes.append(len(group))
                yield from group

        encoded = Captions.from_tokens(captions(), token_ids)
        documents = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        return cls(token_ids, *count_document_frequencies(encoded, documents), len(sizes))

    @classmethod
    def from_counts(cls, counts: Mapping[Sequence[Hashable], int], documents: int) -> Self:
        """Convert a mapping from n-grams to frequencies, such as one stored by a released code."""
        token_ids: dict[Hashable, int] = {}
        encoded = Captions.from_tokens(counts, token_ids)
        if (encoded.lengths > MAX_ORDER).any():
            raise DataError(f"the document frequencies have n-grams of more than {MAX_ORDER} tokens; leave them out")
        values = np.fromiter(counts.values(), np.int64, len(counts))
        keys, arrays = [], []
        for length, ngrams in enumerate(number_ngrams(encoded), start=1):
            complete = encoded.lengths[ngrams.caption_indices] == length
            keys.append(ngrams.keys)
            arrays.append(np.zeros(len(ngrams.keys), np.int64))
            arrays[-1][ngrams.numbers[complete]] = values[ngrams.caption_indices[complete]]
        return cls(token_ids, NgramTable(tuple(keys)), tuple(arrays), documents)

    def counts_of(self, table: NgramTable, token_ids: Mapping[Hashable, int]) -> list[Integers]:
        """Return the frequencies of another table's n-grams, given its token ids; 0 for unknown ones."""
        ids = np.fromiter((self.token_ids.get(token, -1) for token in token_ids), np.int64, len(token_ids))
        return [
            np.where(numbers >= 0, counts[numbers], 0) if len(counts) else np.zeros(len(numbers), np.int64)
            for counts, numbers in zip(self.counts, self.table.translate(table, ids), strict=True)
        ]

    def weight(self, ngram: Sequence[Hashable]) -> float:
        """Return the inverse document frequency of one n-gram, log(documents / frequency)."""
        number = np.zeros(1, np.int64)
        for length, token in enumerate(ngram, start=1):
            number = self.table.find(length, number, np.array([self.token_ids.get(token, TOKEN_LIMIT)]))
        count = self.counts[len(ngram) - 1][number] if number[0] >= 0 else np.zeros(1, np.int64)
        return float(inverse_document_frequencies(count, self.documents)[0])

    def save(self, path: str | Path) -> None:
        """Write a safetensors file; tokens must be strings or integers."""
        from safetensors.numpy import save_file

        arrays = {f"keys.{n}": keys for n, keys in enumerate(self.table.keys, start=1)}
        arrays |= {f"counts.{n}": counts for n, counts in enumerate(self.counts, start=1)}
        notes = {"format": _FORMAT, "documents": str(self.documents), "words": as_json(self.token_ids, "tokens")}
        with atomic_write(path) as partial:
            save_file(arrays, partial, notes)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote; raise DataError, naming the file, for any other."""
        arrays, notes = read_arrays(path, _FORMAT, _HINT)
        token_ids = {token: number for number, token in enumerate(json.loads(notes["words"]))}
        keys, counts = (tuple(arrays[f"{name}.{n}"] for n in range(1, MAX_ORDER + 1)) for name in ("keys", "counts"))
        return cls(token_ids, NgramTable(keys), counts, int(notes["documents"]))


def as_json(names: Iterable[Hashable], what: str) -> str:
    """Return names as a JSON list; raise DataError for names that JSON does not preserve."""
    names = list(names)
    if wrong := [name for name in names if not isinstance(name, str | int)]:
        raise DataError(f"the {what} include {wrong[0]!r}, but only strings and integers can be saved; rename it")
    return json.dumps(names, ensure_ascii=False)


def count_document_frequencies(captions: Captions, documents: Integers) -> tuple[NgramTable, tuple[Integers, ...]]:
    """Return the n-grams of captions and their document frequencies; documents: the document of each caption."""
    keys, counts = [], []
    for ngrams in number_ngrams(captions):
        keys.append(ngrams.keys)
        counts.append(count_documents(ngrams.numbers, documents[ngrams.caption_indices], len(ngrams.keys)))
    return NgramTable(tuple(keys)), tuple(counts)


def read_arrays(path: str | Path, form: str, hint: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays and metadata of a safetensors file of format `form`; raise DataError for any other file."""
    from safetensors import safe_open

    def read() -> tuple[dict[str, np.ndarray], dict[str, str]]:
        with safe_open(path, "numpy") as file:
            notes = file.metadata() or {}
            if notes.get("format") != form:
                raise ValueError(f'its format is not "{form}"')
            return {name: file.get_tensor(name) for name in file.keys()}, notes  # noqa: SIM118 (not a mapping)

    return verified(read, path, hint)


def inverse_document_frequencies(counts: Integers, documents: int) -> Floats:
    """Return log(documents / frequency) of n-grams; a frequency of 0 counts as 1."""
    return np.log(documents) - np.log(np.maximum(1, counts))
