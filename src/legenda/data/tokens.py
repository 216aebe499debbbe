"""The captions of a data set as token ids, tokenized once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from legenda.text import Vocabulary, ptb_tokenize
from legenda.text.tokenizers import Tokenizer


@dataclass(frozen=True, eq=False)
class TokenizedCaptions:
    """The captions of B images; words are numbered in the order of first occurrence.

    words: the word of each id.
    token_ids: those of all captions, concatenated, int32.
    offsets: caption c has token_ids[offsets[c] : offsets[c + 1]], int64.
    image_offsets: image i has the captions image_offsets[i] to image_offsets[i + 1], int64.
    """

    words: tuple[str, ...]
    token_ids: np.ndarray
    offsets: np.ndarray
    image_offsets: np.ndarray

    @staticmethod
    def of(references: Sequence[Sequence[str]], tokenize: Tokenizer = ptb_tokenize) -> TokenizedCaptions:
        """Return the captions of each image, tokenized, by default as the metrics do."""
        return _number((tokenize(caption) for group in references for caption in group), map(len, references))

    @staticmethod
    def of_tokens(captions: Sequence[Sequence[Sequence[str]]]) -> TokenizedCaptions:
        """Return the captions of each image from their tokens."""
        return _number((tokens for group in captions for tokens in group), map(len, captions))

    def counts(self) -> dict[str, int]:
        """Return the frequency of each word."""
        return dict(zip(self.words, np.bincount(self.token_ids, minlength=len(self.words)).tolist(), strict=True))

    def ids(self, encode: Callable[[Sequence[str]], Sequence[int]]) -> list[list[list[int]]]:
        """Return every caption of every image as ids, without bos and eos. encode: returns the ids of words."""
        ids = np.array(encode(self.words), np.int32)[self.token_ids].tolist()
        captions = [ids[first:last] for first, last in pairwise(self.offsets.tolist())]
        return [captions[first:last] for first, last in pairwise(self.image_offsets.tolist())]

    def encoded(self, vocabulary: Vocabulary, max_caption_length: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows (B, R, L) int32 of begin, at most `max_caption_length` words, end, then -1, and counts (B,).

        A caption without words is left out, so an image may have none.
        """
        lengths = np.diff(self.offsets)
        owner = np.repeat(np.arange(len(self.image_offsets) - 1), np.diff(self.image_offsets))
        nonempty = lengths > 0
        owner, starts = owner[nonempty], self.offsets[:-1][nonempty]
        lengths = lengths[nonempty].clip(max=max_caption_length)
        counts = np.bincount(owner, minlength=len(self.image_offsets) - 1)
        row = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)  # index within the image
        shape = len(counts), int(counts.max(initial=0)), int(lengths.max(initial=0)) + 2
        rows = np.full(shape, -1, np.int32)
        rows[owner, row, 0] = vocabulary.bos_token_id
        rows[owner, row, lengths + 1] = vocabulary.eos_token_id
        ids = np.array(vocabulary.encode(self.words), np.int32)
        for position in range(int(lengths.max(initial=0))):
            longer = lengths > position
            rows[owner[longer], row[longer], position + 1] = ids[self.token_ids[starts[longer] + position]]
        return rows, counts


def _number(captions: Iterable[Sequence[str]], counts: Iterable[int]) -> TokenizedCaptions:
    """Return tokenized captions, of which `counts` belong to each image, with their words numbered."""
    known: dict[str, int] = {}
    lengths: list[int] = []

    def ids() -> Iterator[int]:
        for tokens in captions:
            lengths.append(len(tokens))
            for token in tokens:
                yield known.setdefault(token, len(known))

    token_ids = np.fromiter(ids(), np.int32)
    offsets, images = (np.cumsum([0, *sizes], dtype=np.int64) for sizes in (lengths, counts))
    return TokenizedCaptions(tuple(known), token_ids, offsets, images)
