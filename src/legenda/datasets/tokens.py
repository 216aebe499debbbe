"""The captions of a data set as numbered tokens, tokenized once for all that reads them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from legenda.text import Vocabulary, ptb_tokenize


@dataclass(frozen=True, eq=False)
class TokenizedCaptions:
    """The captions of B images; every different word has a number, the first that is met 0.

    words: the word of each number.
    numbers: those of all captions, one after the other, int32.
    ends: caption c owns numbers[ends[c] : ends[c + 1]], int64.
    images: image i owns the captions images[i] to images[i + 1], int64.
    """

    words: tuple[str, ...]
    numbers: np.ndarray
    ends: np.ndarray
    images: np.ndarray

    @staticmethod
    def of(references: Sequence[Sequence[str]]) -> TokenizedCaptions:
        """Return the captions of each image, tokenized as the metrics do."""
        known: dict[str, int] = {}
        numbers, ends = array("i"), array("q", [0])
        for captions in references:
            for caption in captions:
                numbers.extend(known.setdefault(word, len(known)) for word in ptb_tokenize(caption))
                ends.append(len(numbers))
        images = np.cumsum([0, *map(len, references)], dtype=np.int64)
        return TokenizedCaptions(tuple(known), np.asarray(numbers, np.int32), np.asarray(ends, np.int64), images)

    def counts(self) -> dict[str, int]:
        """How often each word occurs."""
        return dict(zip(self.words, np.bincount(self.numbers, minlength=len(self.words)).tolist(), strict=True))

    def ids(self, vocabulary: Vocabulary) -> list[list[list[int]]]:
        """Every caption of every image as ids, whole and without begin or end."""
        ids = np.array(vocabulary.encode(self.words), np.int32)[self.numbers].tolist()
        captions = [ids[first:last] for first, last in pairwise(self.ends.tolist())]
        return [captions[first:last] for first, last in pairwise(self.images.tolist())]

    def encoded(self, vocabulary: Vocabulary, max_caption_length: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows (B, R, L) int32 of begin, at most `max_caption_length` words, end, then -1, and counts (B,).

        A caption without words is left out, so an image may have none.
        """
        lengths = np.diff(self.ends)
        owner = np.repeat(np.arange(len(self.images) - 1), np.diff(self.images))
        spoken = lengths > 0
        owner, starts, lengths = owner[spoken], self.ends[:-1][spoken], lengths[spoken].clip(max=max_caption_length)
        counts = np.bincount(owner, minlength=len(self.images) - 1)
        row = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)  # its place among its image's
        shape = len(counts), int(counts.max(initial=0)), int(lengths.max(initial=0)) + 2
        rows = np.full(shape, -1, np.int32)
        rows[owner, row, 0] = vocabulary.bos_token_id
        rows[owner, row, lengths + 1] = vocabulary.eos_token_id
        ids = np.array(vocabulary.encode(self.words), np.int32)
        for place in range(int(lengths.max(initial=0))):
            reach = lengths > place
            rows[owner[reach], row[reach], place + 1] = ids[self.numbers[starts[reach] + place]]
        return rows, counts


def count_words(parts: Iterable[TokenizedCaptions]) -> dict[str, int]:
    """How often each word occurs in several parts together."""
    total: dict[str, int] = {}
    for part in parts:
        for word, count in part.counts().items():
            total[word] = total.get(word, 0) + count
    return total
