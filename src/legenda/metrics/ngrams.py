"""What BLEU and CIDEr count: runs of one to four tokens, numbered so that arrays can hold them.

An n-gram has a number among those of its length. Its key is exact for every vocabulary: the number of its first n - 1
tokens in the upper half of 64 bits, that of its last token in the lower half. The sorted keys are the table.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

LONGEST = 4
MOST_TOKENS = 2**31  # a token's number stays below it
Integers = NDArray[np.integer]
Floats = NDArray[np.float64]
_HALF = 32


def count_ngrams(tokens: Sequence[str]) -> Counter[tuple[str, ...]]:
    """How often each run of one to four tokens occurs."""
    counts: Counter[tuple[str, ...]] = Counter()
    for n in range(1, LONGEST + 1):
        counts.update(zip(*(tokens[start:] for start in range(n)), strict=False))
    return counts


@dataclass(frozen=True)
class Captions:
    """The numbered tokens of captions, one caption after the other, and how many each has."""

    tokens: Integers
    lengths: Integers

    @classmethod
    def read(cls, captions: Iterable[Sequence[Hashable]], numbers: dict[Hashable, int]) -> Self:
        """Captions with the numbers of a dictionary, which grows by the tokens that it lacks."""
        lengths: list[int] = []

        def tokens() -> Iterator[int]:
            for caption in captions:
                lengths.append(len(caption))
                for token in caption:
                    yield numbers.setdefault(token, len(numbers))

        return cls(np.fromiter(tokens(), np.int32), np.array(lengths, np.int64))

    def clip(self, longest: int) -> Self:
        """The captions without what comes after so many tokens."""
        ends = np.cumsum(self.lengths)
        places = np.arange(len(self.tokens)) - np.repeat(ends - self.lengths, self.lengths)
        return type(self)(self.tokens[places < longest], np.minimum(self.lengths, longest))

    def owners(self) -> Integers:
        """The caption of every token."""
        return np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)

    def room(self) -> Integers:
        """How many tokens there are from every token to the end of its caption."""
        ends = np.cumsum(self.lengths, dtype=np.int32)
        return np.repeat(ends, self.lengths) - np.arange(len(self.tokens), dtype=np.int32)


@dataclass(frozen=True)
class NgramTable:
    """The sorted keys of the known n-grams of each length; the place of a key is the n-gram's number."""

    keys: tuple[Integers, ...]

    def sizes(self) -> tuple[int, ...]:
        return tuple(map(len, self.keys))

    def find(self, length: int, prefixes: Integers, last: Integers) -> Integers:
        """The numbers of n-grams of one length, -1 for unknown ones, from the numbers of their first n - 1 tokens
        (0 where there are none, -1 where they are unknown) and their last tokens.
        """
        return _places(self.keys[length - 1], (prefixes << _HALF) | last, prefixes >= 0)

    def translate(self, other: "NgramTable", words: Integers) -> Iterator[Integers]:
        """For each length, the numbers here of another table's n-grams, given the tokens here of its tokens; -1 for
        n-grams or tokens that are not here.
        """
        before = np.zeros(1, np.int64)
        for length, keys in enumerate(other.keys, start=1):
            last = words[keys & (2**_HALF - 1)]
            prefixes = np.where(last < 0, -1, before[keys >> _HALF])
            before = self.find(length, prefixes, last)
            yield before


def _places(keys: Integers, wanted: Integers, known: NDArray[np.bool_]) -> Integers:
    if not len(keys):
        return np.full(len(wanted), -1)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(known & (keys[places] == wanted), places, -1)


@dataclass(frozen=True)
class Numbered:
    """The n-grams of one length in captions: the sorted `keys` of the different ones; for each occurrence its number
    and the caption it is in; and for each n-gram of an older table that was to be part of this one, its number now.
    """

    keys: Integers
    numbers: Integers
    owners: Integers
    moved: Integers


def number(captions: Captions, base: NgramTable | None = None) -> Iterator[Numbered]:
    """Numbers every n-gram of the captions and of a base, length by length: a table's arrays need much memory, so take
    what is wanted of one length before the next.
    """
    room, owners = captions.room(), captions.owners()
    prefixes = np.zeros(len(captions.tokens), np.int32)
    moved = np.zeros(1, np.int64)
    for length in range(1, LONGEST + 1):
        starts = np.flatnonzero(room >= length)
        wanted = (prefixes[starts].astype(np.int64) << _HALF) | captions.tokens[starts + length - 1]
        if base is not None:
            old = base.keys[length - 1]
            wanted = np.concatenate([(moved[old >> _HALF] << _HALF) | (old & (2**_HALF - 1)), wanted])
        keys, numbers = np.unique(wanted, return_inverse=True)
        del wanted
        moved, found = np.split(numbers, [len(numbers) - len(starts)])
        prefixes[starts] = found
        del numbers, starts
        yield Numbered(keys, found, owners[room >= length], moved)


def count_documents(numbers: Integers, documents: Integers, known: int) -> Integers:
    """In how many documents each of `known` n-grams occurs, from the number and the document of every occurrence."""
    pairs = documents.astype(np.int64) * known + numbers
    pairs.sort()  # np.unique alone would hash them, which takes four times as long
    return np.bincount(pairs[np.flatnonzero(np.diff(pairs, prepend=-1))] % max(known, 1), minlength=known)


@dataclass(frozen=True)
class Bag:
    """The different n-grams of one length in each caption: those of caption c, by number, and how often each occurs
    there, are `numbers[starts[c] : starts[c + 1]]` and `counts` likewise.
    """

    starts: Integers
    numbers: Integers
    counts: Integers

    @classmethod
    def count(cls, numbers: Integers, owners: Integers, captions: int, known: int) -> Self:
        """Counts occurrences, each the number of one of `known` n-grams and its owner, one of so many captions."""
        pairs, counts = np.unique(owners.astype(np.int64) * known + numbers, return_counts=True)
        starts = np.searchsorted(pairs, np.arange(captions + 1) * known)
        return cls(starts, pairs % max(known, 1), counts)

    def owners(self) -> Integers:
        """The caption of every entry."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def select(self, captions: Integers) -> Self:
        """The bag of some captions, in that order."""
        sizes = self.starts[captions + 1] - self.starts[captions]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        places = np.repeat(self.starts[captions] - starts[:-1], sizes) + np.arange(starts[-1])
        return type(self)(starts, self.numbers[places].astype(np.int64), self.counts[places].astype(np.int64))


@dataclass(frozen=True)
class Pairs:
    """Each candidate beside each of its references, candidate by candidate.

    Candidate i has the pairs `starts[i]` to `starts[i + 1]`, with as many references from `first[i]` on.
    """

    starts: Integers
    first: Integers

    @classmethod
    def of(cls, first: Integers, counts: Integers) -> Self:
        return cls(np.concatenate([[0], np.cumsum(counts)]), first)

    def candidates(self) -> Integers:
        return np.repeat(np.arange(len(self.first)), np.diff(self.starts))

    def references(self) -> Integers:
        return np.arange(self.starts[-1]) + np.repeat(self.first - self.starts[:-1], np.diff(self.starts))


@dataclass(frozen=True)
class Overlap:
    """The n-grams of one length that candidates are made of, beside their references.

    `counts[k]` is how often the n-gram of the candidates' entry `entries[k]` occurs in the reference of pair
    `pairs[k]`; every entry is there once for each of its candidate's references, in the candidates' order.
    """

    entries: Integers
    pairs: Integers
    counts: Integers


def overlap(candidates: Bag, references: Bag, pairs: Pairs, known: int) -> Overlap:
    """Looks up the n-grams of candidates in their references; `known` is above every number in either bag."""
    owners = candidates.owners()
    repeats = np.diff(pairs.starts)[owners]
    starts = np.cumsum(repeats) - repeats
    entries = np.repeat(np.arange(len(owners)), repeats)
    offsets = np.arange(len(entries)) - starts[entries]
    wanted = (pairs.first[owners][entries] + offsets) * known + candidates.numbers[entries]
    keys = references.owners() * known + references.numbers
    places = _places(keys, wanted, np.ones(len(wanted), np.bool_))
    counts = np.where(places >= 0, references.counts[places], 0) if len(keys) else np.zeros(len(wanted), np.int64)
    return Overlap(entries, pairs.starts[owners][entries] + offsets, counts)


@dataclass(frozen=True)
class Corpus:
    """One candidate and one or more references an image, counted once for all scores.

    `candidates[n - 1]` and `references[n - 1]` are the bags of n-grams, `overlaps[n - 1]` what they share; lengths are
    in tokens; `words` numbers the tokens.
    """

    words: dict[Hashable, int]
    table: NgramTable
    candidates: list[Bag]
    references: list[Bag]
    overlaps: list[Overlap]
    pairs: Pairs
    candidate_lengths: Integers
    reference_lengths: Integers

    @classmethod
    def from_tokens(
        cls, candidates: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Sequence[Hashable]]]
    ) -> Self:
        """Counts tokenized captions, given image by image. Raises ValueError for unequal numbers of images."""
        if len(candidates) != len(references):
            raise ValueError(f"{len(candidates)} candidates do not go with {len(references)} groups of references")
        images = len(candidates)
        words: dict[Hashable, int] = {}
        captions = Captions.read([*candidates, *(caption for group in references for caption in group)], words)
        keys, candidate_bags, reference_bags = [], [], []
        for each in number(captions):
            bag = Bag.count(each.numbers, each.owners, len(captions.lengths), len(each.keys))
            keys.append(each.keys)
            candidate_bags.append(bag.select(np.arange(images)))
            reference_bags.append(bag.select(np.arange(images, len(captions.lengths))))
        table = NgramTable(tuple(keys))
        sizes = np.fromiter(map(len, references), np.int64, images)
        pairs = Pairs.of(np.cumsum(sizes) - sizes, sizes)
        overlaps = [
            overlap(mine, theirs, pairs, known)
            for mine, theirs, known in zip(candidate_bags, reference_bags, table.sizes(), strict=True)
        ]
        return cls(
            words,
            table,
            candidate_bags,
            reference_bags,
            overlaps,
            pairs,
            captions.lengths[:images],
            captions.lengths[images:],
        )
