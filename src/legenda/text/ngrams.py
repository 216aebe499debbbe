"""The n-grams of captions, how often each occurs in captions, and in how many documents."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, starmap

import numpy as np

MAX_ORDER = 4
Tokens = Sequence[Hashable]
Ngram = tuple[Hashable, ...]


def ngrams(tokens: Tokens) -> Iterator[Ngram]:
    """Return all n-grams of one to four tokens, the shortest first."""
    tails = [tokens[start:] for start in range(MAX_ORDER)]
    return chain.from_iterable(zip(*tails[:n], strict=False) for n in range(1, MAX_ORDER + 1))


@dataclass(frozen=True)
class DocumentFrequencies:
    """The number of documents, out of `documents`, that contain each n-gram of one to four tokens.

    A document consists of all references of one image, or of one caption in some released codes. Tokens are strings or
    ids.
    """

    counts: Mapping[Ngram, int]
    documents: int

    @classmethod
    def from_references(cls, references: Iterable[Sequence[Tokens]]) -> DocumentFrequencies:
        """Count documents of tokenized references, given image by image.

        For captions as documents, as in the released codes of MD-SAN and M2, give each caption as a separate image.
        """
        counts: Counter[Ngram] = Counter()
        documents = 0
        for group in references:
            documents += 1
            counts.update({ngram for caption in group for ngram in ngrams(caption)})
        return cls(counts, documents)


class NgramCounts:
    """Counts of the N different n-grams of one to four tokens in C captions, as arrays of E entries.

    Entries ascend by caption; those of a caption are in the order of the function `ngrams`.
    captions, ngrams, counts: the caption, the n-gram and the count of each entry, `(E,)`. orders: the length of each
    n-gram less one, `(N,)`. lengths: the number of tokens of each caption, `(C,)`.
    """

    def __init__(self, captions: Sequence[Tokens]) -> None:
        numbers: dict[Hashable, int] = {}
        self._tokens = list(chain.from_iterable(captions))
        tokens = np.array([numbers.setdefault(token, len(numbers)) for token in self._tokens], np.int64)
        self.lengths = np.array(list(map(len, captions)), np.int64)
        owners = np.repeat(np.arange(len(captions)), self.lengths)
        ends = np.repeat(self.lengths.cumsum(), self.lengths)

        starts, ids = np.arange(len(tokens)), tokens
        places: list[np.ndarray] = []  # of every n-gram in the captions, the shortest first
        names: list[np.ndarray] = []
        firsts: list[np.ndarray] = []  # the first place of each different n-gram
        for order in range(MAX_ORDER):
            inside = starts + order < ends[starts]
            starts, ids = starts[inside], ids[inside]
            longer = ids if order == 0 else ids * len(numbers) + tokens[starts + order]
            _, first, ids = np.unique(longer, return_index=True, return_inverse=True)
            places.append(starts)
            names.append(ids + sum(map(len, firsts)))
            firsts.append(starts[first])
        self.orders = np.repeat(np.arange(MAX_ORDER), list(map(len, firsts)))
        self._firsts = np.concatenate(firsts)
        self._size = max(1, len(self.orders))

        holders = owners[np.concatenate(places)]
        by_caption = holders.argsort(kind="stable")
        occurrences = (holders * self._size + np.concatenate(names))[by_caption]
        self._keys, first, counts = np.unique(occurrences, return_index=True, return_counts=True)
        in_order = first.argsort()
        self._entries = in_order.argsort()
        self.counts = counts[in_order]
        self.captions, self.ngrams = np.divmod(self._keys[in_order], self._size)

    def shared(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pair and both entries of each n-gram that both captions of a pair have.

        first, second: the captions of each pair, `(P,)`. The result ascends by pair, then by the first caption's entry.
        """
        sizes = np.bincount(self.captions, minlength=len(self.lengths))
        pairs = np.repeat(np.arange(len(first)), sizes[first])
        entries = _ranges((sizes.cumsum() - sizes)[first], sizes[first])
        keys = second[pairs] * self._size + self.ngrams[entries]
        places = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        hits = self._keys[places] == keys
        return pairs[hits], entries[hits], self._entries[places[hits]]

    def count_documents(self, documents: np.ndarray) -> np.ndarray:
        """Return the number of documents that contain each n-gram, `(N,)`.

        documents: that of each caption, `(C,)`, -1 where it belongs to none.
        """
        holders = documents[self.captions]
        keys = np.sort((holders * self._size + self.ngrams)[holders >= 0])  # np.unique takes five times as long
        keys = keys[np.diff(keys, prepend=-1) > 0]
        return np.bincount(keys % self._size, minlength=len(self.orders))

    def look_up(self, counts: Mapping[Ngram, int]) -> np.ndarray:
        """Return what a mapping has for each n-gram, `(N,)`, 0 where it has none."""
        ends = self._firsts + self.orders + 1
        slices = starmap(slice, zip(self._firsts.tolist(), ends.tolist(), strict=True))
        return np.array([counts.get(tuple(self._tokens[part]), 0) for part in slices], np.int64)


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
        """groups: one or more references of each image. images: that of each candidate, by default in order."""
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
        return inverse_frequencies(self.ngrams.look_up(df.counts), df.documents)

    @cached_property
    def shared(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pair and entries of each n-gram that a candidate and a reference share; see `NgramCounts.shared`."""
        return self.ngrams.shared(self.candidates, self.references)


def _ranges(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the numbers from each begin on, as many as its size, one range after the other."""
    return np.arange(sizes.sum()) + np.repeat(begins - (sizes.cumsum() - sizes), sizes)


def inverse_frequencies(counts: np.ndarray, documents: int) -> np.ndarray:
    """Return the inverse document frequency, log(documents / count), for each count; that of 0 is that of 1."""
    values, places = np.unique(np.maximum(counts, 1), return_inverse=True)
    return np.array([math.log(documents) - math.log(value) for value in values.tolist()])[places]
