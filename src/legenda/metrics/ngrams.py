"""N-grams of one to four tokens as arrays, for BLEU and CIDEr.

An n-gram has a number among those of its length. Its 64-bit key holds the number of its first n - 1 tokens in the upper
half and its last token's number in the lower half, so that keys never collide. The table consists of the sorted keys.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

MAX_ORDER = 4
TOKEN_LIMIT = 2**31  # token ids are smaller
Integers = NDArray[np.integer]
Floats = NDArray[np.float64]
_HALF = 32


def count_ngrams(tokens: Sequence[str]) -> Counter[tuple[str, ...]]:
    """Return the number of occurrences of each n-gram of one to four tokens."""
    counts: Counter[tuple[str, ...]] = Counter()
    for n in range(1, MAX_ORDER + 1):
        counts.update(zip(*(tokens[start:] for start in range(n)), strict=False))
    return counts


@dataclass(frozen=True)
class Captions:
    """Captions as token ids: all `tokens` concatenated, and the `lengths` of the captions."""

    tokens: Integers
    lengths: Integers

    @classmethod
    def from_tokens(cls, captions: Iterable[Sequence[Hashable]], ids: dict[Hashable, int]) -> Self:
        """Return captions as ids of a dictionary, to which unknown tokens are added."""
        lengths: list[int] = []

        def tokens() -> Iterator[int]:
            for caption in captions:
                lengths.append(len(caption))
                for token in caption:
                    yield ids.setdefault(token, len(ids))

        return cls(np.fromiter(tokens(), np.int32), np.array(lengths, np.int64))

    def truncate(self, max_length: int) -> Self:
        """Return the first `max_length` tokens of each caption."""
        ends = np.cumsum(self.lengths)
        positions = np.arange(len(self.tokens)) - np.repeat(ends - self.lengths, self.lengths)
        return type(self)(self.tokens[positions < max_length], np.minimum(self.lengths, max_length))

    def caption_indices(self) -> Integers:
        """Return the index of the caption that each token belongs to."""
        return np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)

    def num_remaining(self) -> Integers:
        """Return the number of tokens from each token, inclusive, to the end of its caption."""
        ends = np.cumsum(self.lengths, dtype=np.int32)
        return np.repeat(ends, self.lengths) - np.arange(len(self.tokens), dtype=np.int32)


@dataclass(frozen=True)
class NgramTable:
    """The sorted keys of the known n-grams of each length; the index of a key is the n-gram's number."""

    keys: tuple[Integers, ...]

    def sizes(self) -> tuple[int, ...]:
        """Return the number of n-grams of each length."""
        return tuple(map(len, self.keys))

    def find(self, length: int, prefixes: Integers, last: Integers) -> Integers:
        """Return the numbers of n-grams of one length, -1 for unknown ones.

        prefixes: the numbers of their first n - 1 tokens, 0 where n is 1, and -1 where they are unknown. last: the ids
        of their last tokens.
        """
        return _find_sorted(self.keys[length - 1], (prefixes << _HALF) | last, prefixes >= 0)

    def translate(self, other: "NgramTable", ids: Integers) -> Iterator[Integers]:
        """Yield, for each length, the numbers in this table of another table's n-grams, -1 for missing ones.

        ids: the id in this table of each token of the other one, -1 for missing ones.
        """
        prefix_numbers = np.zeros(1, np.int64)
        for length, keys in enumerate(other.keys, start=1):
            last = ids[keys & (2**_HALF - 1)]
            prefixes = np.where(last < 0, -1, prefix_numbers[keys >> _HALF])
            prefix_numbers = self.find(length, prefixes, last)
            yield prefix_numbers


def _find_sorted(keys: Integers, wanted: Integers, valid: NDArray[np.bool_]) -> Integers:
    """Return the indices of wanted keys in sorted ones; -1 for missing and for invalid ones."""
    if not len(keys):
        return np.full(len(wanted), -1)
    indices = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(valid & (keys[indices] == wanted), indices, -1)


@dataclass(frozen=True)
class NumberedNgrams:
    """The n-grams of one length in captions.

    keys: the sorted keys of the distinct n-grams. numbers, caption_indices: the number and the caption of each
    occurrence. base_numbers: the number of each n-gram of the base table, which the keys include.
    """

    keys: Integers
    numbers: Integers
    caption_indices: Integers
    base_numbers: Integers


def number_ngrams(captions: Captions, base: NgramTable | None = None) -> Iterator[NumberedNgrams]:
    """Yield all n-grams of captions and of a base table, one length after the other.

    The arrays of a length need much memory: use them before the next length is computed.
    """
    num_remaining, caption_indices = captions.num_remaining(), captions.caption_indices()
    prefixes = np.zeros(len(captions.tokens), np.int32)
    base_numbers = np.zeros(1, np.int64)
    for length in range(1, MAX_ORDER + 1):
        starts = np.flatnonzero(num_remaining >= length)
        wanted = (prefixes[starts].astype(np.int64) << _HALF) | captions.tokens[starts + length - 1]
        if base is not None:
            old = base.keys[length - 1]
            wanted = np.concatenate([(base_numbers[old >> _HALF] << _HALF) | (old & (2**_HALF - 1)), wanted])
        keys, numbers = np.unique(wanted, return_inverse=True)
        del wanted
        base_numbers, found = np.split(numbers, [len(numbers) - len(starts)])
        prefixes[starts] = found
        del numbers, starts
        yield NumberedNgrams(keys, found, caption_indices[num_remaining >= length], base_numbers)


def count_documents(numbers: Integers, documents: Integers, num_ngrams: int) -> Integers:
    """Return in how many documents each n-gram occurs.

    numbers, documents: the n-gram and the document of each occurrence. num_ngrams: the number of distinct n-grams.
    """
    pairs = documents.astype(np.int64) * num_ngrams + numbers
    pairs.sort()  # np.unique alone would hash them, which takes four times as long
    return np.bincount(pairs[np.flatnonzero(np.diff(pairs, prepend=-1))] % max(num_ngrams, 1), minlength=num_ngrams)


@dataclass(frozen=True)
class Bag:
    """The distinct n-grams of one length in each caption (a bag of n-grams).

    Caption c has the n-grams `numbers[starts[c] : starts[c + 1]]`, which occur `counts[starts[c] : starts[c + 1]]`
    times.
    """

    starts: Integers
    numbers: Integers
    counts: Integers

    @classmethod
    def count(cls, numbers: Integers, caption_indices: Integers, num_captions: int, num_ngrams: int) -> Self:
        """Return the bags of occurrences, given as n-gram numbers and caption indices."""
        pairs, counts = np.unique(caption_indices.astype(np.int64) * num_ngrams + numbers, return_counts=True)
        starts = np.searchsorted(pairs, np.arange(num_captions + 1) * num_ngrams)
        return cls(starts, pairs % max(num_ngrams, 1), counts)

    def caption_indices(self) -> Integers:
        """Return the caption of each entry."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def select(self, captions: Integers) -> Self:
        """Return the bags of some captions, in that order."""
        sizes = self.starts[captions + 1] - self.starts[captions]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        entries = np.repeat(self.starts[captions] - starts[:-1], sizes) + np.arange(starts[-1])
        return type(self)(starts, self.numbers[entries].astype(np.int64), self.counts[entries].astype(np.int64))


@dataclass(frozen=True)
class Pairs:
    """All pairs of a candidate and one of its references, ordered by candidate.

    Candidate i has the pairs `starts[i] : starts[i + 1]`, with the references from index `first[i]` on.
    """

    starts: Integers
    first: Integers

    @classmethod
    def from_counts(cls, first: Integers, counts: Integers) -> Self:
        """Return the pairs of candidates with `counts[i]` references each, the first one at index `first[i]`."""
        return cls(np.concatenate([[0], np.cumsum(counts)]), first)

    def candidate_indices(self) -> Integers:
        """Return the candidate of each pair."""
        return np.repeat(np.arange(len(self.first)), np.diff(self.starts))

    def reference_indices(self) -> Integers:
        """Return the reference of each pair."""
        return np.arange(self.starts[-1]) + np.repeat(self.first - self.starts[:-1], np.diff(self.starts))


@dataclass(frozen=True)
class Overlap:
    """The occurrences of the candidates' n-grams of one length in their references.

    `counts[k]` is how often the n-gram of the candidates' entry `entries[k]` occurs in the reference of pair
    `pairs[k]`. Each entry occurs once for each reference of its candidate, in the candidates' order.
    """

    entries: Integers
    pairs: Integers
    counts: Integers


def overlap(candidates: Bag, references: Bag, pairs: Pairs, num_ngrams: int) -> Overlap:
    """Look up the candidates' n-grams in their references; all numbers in the bags are below `num_ngrams`."""
    caption_indices = candidates.caption_indices()
    repeats = np.diff(pairs.starts)[caption_indices]
    starts = np.cumsum(repeats) - repeats
    entries = np.repeat(np.arange(len(caption_indices)), repeats)
    offsets = np.arange(len(entries)) - starts[entries]
    wanted = (pairs.first[caption_indices][entries] + offsets) * num_ngrams + candidates.numbers[entries]
    keys = references.caption_indices() * num_ngrams + references.numbers
    found = _find_sorted(keys, wanted, np.ones(len(wanted), np.bool_))
    counts = np.where(found >= 0, references.counts[found], 0) if len(keys) else np.zeros(len(wanted), np.int64)
    return Overlap(entries, pairs.starts[caption_indices][entries] + offsets, counts)


@dataclass(frozen=True)
class NgramCounts:
    """The n-grams of candidates and of their references.

    `candidates[n - 1]` and `references[n - 1]` are the bags of n-grams, `overlaps[n - 1]` their overlap. Lengths are in
    tokens.
    """

    candidates: Sequence[Bag]
    references: Sequence[Bag]
    overlaps: Sequence[Overlap]
    pairs: Pairs
    candidate_lengths: Integers
    reference_lengths: Integers


@dataclass(frozen=True)
class Corpus(NgramCounts):
    """One candidate and one or more references for each image, counted once for all metrics.

    `token_ids` holds the id of each token, `table` the n-grams of these ids.
    """

    token_ids: dict[Hashable, int]
    table: NgramTable

    @classmethod
    def from_tokens(
        cls, candidates: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Sequence[Hashable]]]
    ) -> Self:
        """Count tokenized captions, given image by image; raise ValueError for unequal numbers of images."""
        if len(candidates) != len(references):
            raise ValueError(f"expected references of {len(candidates)} images, got those of {len(references)}")
        images = len(candidates)
        token_ids: dict[Hashable, int] = {}
        captions = Captions.from_tokens(
            [*candidates, *(caption for group in references for caption in group)], token_ids
        )
        sizes = np.fromiter(map(len, references), np.int64, images)
        pairs = Pairs.from_counts(np.cumsum(sizes) - sizes, sizes)
        keys, candidate_bags, reference_bags, overlaps = [], [], [], []
        for found in number_ngrams(captions):
            bag = Bag.count(found.numbers, found.caption_indices, len(captions.lengths), len(found.keys))
            keys.append(found.keys)
            candidate_bags.append(bag.select(np.arange(images)))
            reference_bags.append(bag.select(np.arange(images, len(captions.lengths))))
            overlaps.append(overlap(candidate_bags[-1], reference_bags[-1], pairs, len(found.keys)))
        lengths = captions.lengths[:images], captions.lengths[images:]
        return cls(candidate_bags, reference_bags, overlaps, pairs, *lengths, token_ids, NgramTable(tuple(keys)))
