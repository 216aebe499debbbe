"""The n-grams of captions, how often each occurs in captions, and in how many documents."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

import numpy as np

MAX_ORDER = 4
Token = TypeVar("Token", bound=Hashable)
Tokens = Sequence[Hashable]
Ngram = tuple[Hashable, ...]


def ngrams(tokens: Tokens) -> Iterator[Ngram]:
    """Return all n-grams of one to four tokens, the shortest first."""
    tails = [tokens[start:] for start in range(MAX_ORDER)]
    return chain.from_iterable(zip(*tails[:n], strict=False) for n in range(1, MAX_ORDER + 1))


def number_tokens(captions: Iterable[Sequence[Token]]) -> tuple[dict[Token, int], np.ndarray, np.ndarray]:
    """Return the number of each token, in the order of first occurrence, and captions as numbers.

    The numbers of all captions are concatenated, int32; the last array has the length of each caption, int64.
    """
    numbers = defaultdict[Token, int]()
    numbers.default_factory = numbers.__len__
    tokens, lengths = array("i"), array("q")
    for caption in captions:
        lengths.append(len(caption))
        tokens.extend(map(numbers.__getitem__, caption))
    return dict(numbers), np.array(tokens, np.int32), np.array(lengths, np.int64)


def _extend(
    starts: np.ndarray, prefixes: np.ndarray, order: int, tokens: np.ndarray, ends: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and keys of the n-grams that are one token longer than those of `order` tokens.

    An n-gram has the key `prefix * size + token`, where `prefix` numbers the n-gram without its last token, so that no
    two n-grams of a length share a key.
    starts, prefixes: where the shorter n-grams start, and their numbers. tokens, ends: the number of each token, below
    `size`, and where its caption ends.
    """
    inside = starts + order < ends[starts]
    starts = starts[inside]
    return starts, np.multiply(prefixes[inside], size, dtype=np.int64) + tokens[starts + order]


def _unique(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys, ascending, and the position among them of each key.

    np.unique sorts positions, which takes five times as long as to sort numbers that hold key and position.
    """
    bits = len(keys).bit_length()
    if int(keys.max(initial=0)) < 2 ** (63 - bits):
        order = keys << bits
        order |= np.arange(len(keys))
        order.sort()
        ascending = order >> bits
        order &= 2**bits - 1
    else:
        order = keys.argsort()
        ascending = keys[order]
    is_first = np.diff(ascending, prepend=-1) > 0
    positions = np.empty(len(keys), np.int32)
    positions[order] = is_first.cumsum(dtype=np.int32) - 1
    return ascending[is_first], positions


def _find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the position of each wanted key among ascending keys, -1 where it is missing."""
    positions = np.searchsorted(keys, wanted)
    hits = positions < len(keys)
    hits[hits] = keys[positions[hits]] == wanted[hits]
    return np.where(hits, positions, -1)


def _find_longer(keys: np.ndarray, prefixes: np.ndarray, tokens: np.ndarray, size: int) -> np.ndarray:
    """Return the number of each n-gram among keys of `_extend`, -1 where it is missing or one of its parts is -1."""
    return _find(keys, np.where((prefixes < 0) | (tokens < 0), -1, prefixes * size + tokens))


@dataclass(frozen=True, eq=False)
class DocumentFrequencies:
    """The number of documents, out of `documents`, that contain each n-gram of one to four tokens.

    A document consists of all references of one image, or of one caption in some released codes. Tokens are strings or
    ids. N-grams of a single document weigh as much as unknown ones and are not stored.

    numbers: the number of each token. keys, counts: for each length, the ascending keys of its n-grams and the number
    of documents of each. A key is that of `_extend`; the number of an n-gram is its position among those of its length.
    """

    numbers: Mapping[Hashable, int]
    keys: Sequence[np.ndarray]
    counts: Sequence[np.ndarray]
    documents: int

    @classmethod
    def from_references(cls, references: Iterable[Sequence[Tokens]]) -> DocumentFrequencies:
        """Count documents of tokenized references, given image by image.

        For captions as documents, as in the released codes of MD-SAN and M2, give each caption as a separate image.
        """
        groups = list(references)
        return cls._count(*number_tokens(chain.from_iterable(groups)), list(map(len, groups)))

    @classmethod
    def from_ids(cls, ids: np.ndarray, lengths: np.ndarray, sizes: Sequence[int]) -> DocumentFrequencies:
        """Count documents of concatenated captions; lengths: of each caption; sizes: captions of each document."""
        distinct, tokens = _unique(ids)
        numbers = {token: number for number, token in enumerate(distinct.tolist())}
        return cls._count(numbers, tokens, lengths, sizes)

    @classmethod
    def _count(
        cls, numbers: Mapping[Any, int], tokens: np.ndarray, lengths: np.ndarray, sizes: Sequence[int]
    ) -> DocumentFrequencies:
        documents = np.repeat(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes), lengths)
        starts, prefixes = np.arange(len(tokens), dtype=np.int32), np.zeros(len(tokens), np.int32)
        ends = np.repeat(lengths.cumsum().astype(np.int32), lengths)
        keys: list[np.ndarray] = []
        counts: list[np.ndarray] = []
        for order in range(MAX_ORDER):
            starts, longer = _extend(starts, prefixes, order, tokens, ends, len(numbers))
            distinct, ngrams = _unique(longer)
            del longer  # which are as large as all other arrays
            frequencies = _count_documents(ngrams, documents[starts], len(distinct))
            is_stored = frequencies > 1
            keys.append(distinct[is_stored])
            counts.append(frequencies[is_stored])
            continued = is_stored[ngrams]
            starts, prefixes = starts[continued], (is_stored.cumsum(dtype=np.int32) - 1)[ngrams[continued]]
        return cls(numbers, keys, counts, len(sizes))

    @classmethod
    def from_counts(
        cls, tokens: Iterable[Hashable], ngrams: np.ndarray, counts: np.ndarray, documents: int
    ) -> DocumentFrequencies:
        """Return frequencies that were counted before.

        ngrams: positions in `tokens`, `(N, MAX_ORDER)`, shorter n-grams filled up with -1. An n-gram whose prefix is
        missing is left out. counts: the number of documents of each, `(N,)`.
        """
        numbers = {token: number for number, token in enumerate(tokens)}
        prefixes, lengths = np.zeros(len(ngrams), np.int64), (ngrams >= 0).sum(axis=1)
        keys: list[np.ndarray] = []
        frequencies: list[np.ndarray] = []
        for order in range(MAX_ORDER):
            own = np.flatnonzero((lengths == order + 1) & (prefixes >= 0))
            longer = prefixes[own] * len(numbers) + ngrams[own, order]
            by_key = longer.argsort()
            keys.append(longer[by_key])
            frequencies.append(counts[own[by_key]])
            prefixes = _find_longer(keys[-1], prefixes, ngrams[:, order], len(numbers))
        return cls(numbers, keys, frequencies, documents)


def _count_documents(ngrams: np.ndarray, documents: np.ndarray, size: int) -> np.ndarray:
    """Return in how many documents each of `size` n-grams occurs.

    ngrams, documents: the n-gram and the document of each occurrence.
    """
    keys = np.left_shift(ngrams, 32, dtype=np.int64)
    keys |= documents
    keys.sort()  # np.unique takes five times as long
    return np.bincount(keys[np.diff(keys, prepend=-1) > 0] >> 32, minlength=size)


class NgramCounts:
    """Counts of the N different n-grams of one to four tokens in C captions, as arrays of E entries.

    Entries ascend by caption; those of a caption are in the order of the function `ngrams`.
    captions, ngrams, counts: the caption, the n-gram and the count of each entry, `(E,)`. orders: the length of each
    n-gram less one, `(N,)`. lengths: the number of tokens of each caption, `(C,)`. numbers, keys: as in
    `DocumentFrequencies`; the n-grams of each length follow those of the shorter ones.
    """

    def __init__(self, captions: Sequence[Tokens]) -> None:
        self.numbers, tokens, self.lengths = number_tokens(captions)
        owners = np.repeat(np.arange(len(captions)), self.lengths)
        ends = np.repeat(self.lengths.cumsum(), self.lengths)

        starts, ids = np.arange(len(tokens)), np.zeros(len(tokens), np.int64)
        places: list[np.ndarray] = []  # of every n-gram in the captions, the shortest first
        names: list[np.ndarray] = []
        self.keys: list[np.ndarray] = []
        for order in range(MAX_ORDER):
            starts, longer = _extend(starts, ids, order, tokens, ends, len(self.numbers))
            distinct, ids = _unique(longer)
            places.append(starts)
            names.append(ids + sum(map(len, self.keys)))
            self.keys.append(distinct)
        self.orders = np.repeat(np.arange(MAX_ORDER), list(map(len, self.keys)))
        self._size = max(1, len(self.orders))

        holders = owners[np.concatenate(places)]
        by_caption = holders.argsort(kind="stable")
        occurrences = (holders * self._size + np.concatenate(names))[by_caption]
        self._pairs, first, counts = np.unique(occurrences, return_index=True, return_counts=True)
        in_order = first.argsort()
        self._entries = in_order.argsort()
        self.counts = counts[in_order]
        self.captions, self.ngrams = np.divmod(self._pairs[in_order], self._size)

    def shared(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pair and both entries of each n-gram that both captions of a pair have.

        first, second: the captions of each pair, `(P,)`. The result ascends by pair, then by the first caption's entry.
        """
        sizes = np.bincount(self.captions, minlength=len(self.lengths))
        pairs = np.repeat(np.arange(len(first)), sizes[first])
        entries = _ranges((sizes.cumsum() - sizes)[first], sizes[first])
        keys = second[pairs] * self._size + self.ngrams[entries]
        places = _find(self._pairs, keys)
        hits = places >= 0
        return pairs[hits], entries[hits], self._entries[places[hits]]

    def count_documents(self, documents: np.ndarray) -> np.ndarray:
        """Return the number of documents that contain each n-gram, `(N,)`.

        documents: the document of each caption, `(C,)`, -1 where it belongs to none.
        """
        holders = documents[self.captions]
        return _count_documents(self.ngrams[holders >= 0], holders[holders >= 0], len(self.orders))

    def look_up(self, df: DocumentFrequencies) -> np.ndarray:
        """Return the number of documents of each n-gram, `(N,)`, 0 where it is not stored."""
        numbers = np.array([df.numbers.get(token, -1) for token in self.numbers], np.int64)
        ids, counts, begin = np.zeros(1, np.int64), np.zeros(len(self.orders), np.int64), 0
        for own, keys, frequencies in zip(self.keys, df.keys, df.counts, strict=True):
            prefixes, tokens = np.divmod(own, max(1, len(numbers)))
            ids = _find_longer(keys, ids[prefixes], numbers[tokens], len(df.numbers))
            stored = np.flatnonzero(ids >= 0)
            counts[begin + stored] = frequencies[ids[stored]]
            begin += len(own)
        return counts


class Comparison:
    """The n-grams of K candidates and of the references of their images.

    Every candidate and a reference of its image make a pair; the P pairs ascend by candidate.
    candidates, references: the captions of each pair, by their numbers in `ngrams`, `(P,)` each. begins: the first pair
    of each candidate, `(K,)`. documents: the image of each reference among the captions, -1 of candidates.
    """

    def __init__(
        self,
        candidates: Sequence[Tokens],
        groups: Sequence[Sequence[Tokens]],
        images: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        """groups: one or more references of each image. images: the image of each candidate, by default in order."""
        self.ngrams = NgramCounts([*candidates, *chain.from_iterable(groups)])
        sizes = np.array(list(map(len, groups)), np.int64)
        self.documents = np.repeat(np.arange(-1, len(groups)), [len(candidates), *sizes])
        owners = np.arange(len(candidates)) if images is None else np.asarray(images, np.int64)
        self.candidates = np.repeat(np.arange(len(owners)), sizes[owners])
        self.begins = sizes[owners].cumsum() - sizes[owners]
        self.references = len(candidates) + _ranges((sizes.cumsum() - sizes)[owners], sizes[owners])

    def inverse_frequencies(self, df: DocumentFrequencies | None) -> np.ndarray:
        """Return the inverse document frequency of each n-gram; without `df` an image's references are a document."""
        if df is None:
            return inverse_frequencies(self.ngrams.count_documents(self.documents), int(self.documents[-1]) + 1)
        return inverse_frequencies(self.ngrams.look_up(df), df.documents)

    @cached_property
    def shared(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pair and entries of each n-gram that a candidate and a reference share; see `NgramCounts.shared`."""
        return self.ngrams.shared(self.candidates, self.references)


def _ranges(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the numbers from each begin on, as many as its size, one range after the other."""
    return np.arange(sizes.sum()) + np.repeat(begins - (sizes.cumsum() - sizes), sizes)


def inverse_frequencies(counts: np.ndarray, documents: int) -> np.ndarray:
    """Return the inverse document frequency, log(documents / count), for each count; 0 is taken as 1."""
    values, places = np.unique(np.maximum(counts, 1), return_inverse=True)
    return np.array([math.log(documents) - math.log(value) for value in values.tolist()])[places]
