"""Rewards of self-critical training, computed on token ids: CIDEr-D and BLEU.

The n-grams of a data set's references are counted once. A call looks up the samples' n-grams, in a kernel compiled by
numba (the extra `fast`) where it is installed, otherwise with NumPy; both give the same values. Rewards are immutable:
threads and forked processes may share them.

Sources: Rennie et al., "Self-critical Sequence Training for Image Captioning", 2017; the reward code of the released
AoANet, X-LAN and MD-SAN, to which the values are equal.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from legenda.errors import DataError
from legenda.metrics.bleu import BleuStatistics
from legenda.metrics.cider import similarities
from legenda.metrics.document_frequencies import DocumentFrequencies, inverse_document_frequencies
from legenda.metrics.ngrams import MAX_ORDER, Bag, Captions, Floats, Integers, NgramCounts, Pairs, overlap
from legenda.metrics.reward_index import Eos, ReferenceIndex, References

if TYPE_CHECKING:
    from legenda.metrics import reward_numba


@functools.cache
def _numba() -> ModuleType | None:
    """Return the compiled kernel's module where numba is installed; importing numba takes half a second."""
    try:
        from legenda.metrics import reward_numba
    except ImportError:
        return None
    return reward_numba


class _Reward:
    """Base class of the rewards: an index of references, and the checks of a call."""

    def __init__(
        self,
        references: References,
        *,
        eos_token_id: int = 0,
        eos: Eos = "keep",
        max_reference_length: int | None = None,
        df: Literal["references", "captions"] | DocumentFrequencies = "references",
    ) -> None:
        self.index = ReferenceIndex.build(
            references, eos_token_id=eos_token_id, eos=eos, max_reference_length=max_reference_length, df=df
        )

    @classmethod
    def from_index(cls, index: ReferenceIndex) -> Self:
        """Return a reward that shares another one's references: `BleuReward.from_index(cider_d.index)`."""
        reward = cls.__new__(cls)
        reward.index = index
        return reward

    def save(self, path: str | Path) -> None:
        """Write the counted references to a safetensors file; image ids must be strings or integers."""
        self.index.save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return a reward on the references of a file that `save` wrote; raise DataError for any other file."""
        return cls.from_index(ReferenceIndex.load(path))

    def __call__(self, images: Iterable[Hashable], samples: ArrayLike) -> Floats:
        """Return the reward of each sample, shape (B, K).

        images: the ids of B images, or their indices where the references are a sequence; they may repeat.
        samples: token ids, shape (B, K, T). A sample ends at its first EOS, or after T tokens.
        Raise DataError for an image without references, another shape, or a negative id before EOS.
        """
        array = np.asarray(samples)
        indices = self.index.image_indices(images)
        if array.ndim != 3 or len(array) != len(indices) or array.dtype.kind not in "iu":
            raise DataError(
                f"the samples have the shape {array.shape} and the type {array.dtype}; give integers of the shape "
                f"({len(indices)}, K, T) for {len(indices)} image(s)"
            )
        if not array.size:
            array = np.full((*array.shape[:2], 1), self.index.eos_token_id)
        flat = array.reshape(-1, array.shape[2]).astype(np.int64, copy=False)
        return self._score(np.repeat(indices, array.shape[1]), flat).reshape(array.shape[:2])

    def _score(self, images: Integers, samples: Integers) -> Floats:
        raise NotImplementedError


class CiderD(_Reward):
    """CIDEr-D, in 0..10, of samples of token ids.

    references: a list of captions as token ids for each image, by image id or in order.
    eos_token_id: the id that ends a sample, and a reference where present; what follows it is ignored.
    eos: "keep" treats EOS like any other token, in samples and in references that have it; "append" also appends it to
        references without it; "drop" removes it.
    max_reference_length: the number of tokens, EOS included, to which references are truncated after document
        frequencies have been counted; None truncates nothing.
    df: what a document is: "references", all captions of an image; "captions", each caption; or document frequencies
        of token ids, as from `DocumentFrequencies.from_references`.

    The released codes correspond to: AoANet `eos="append", max_reference_length=16`; X-LAN `eos="keep"` with references
    that end in 0 and are truncated to 16 words; MD-SAN and M2 `eos="drop", df="captions"`, where distinct words outside
    the vocabulary need distinct ids, since these codes compare strings.
    """

    @functools.cached_property
    def weights(self) -> list[Floats]:
        """The inverse document frequencies of the known n-grams of each length, and last that of unknown ones."""
        return [
            inverse_document_frequencies(np.append(counts, 0), self.index.documents) for counts in self.index.counts
        ]

    @functools.cached_property
    def _compiled(self) -> reward_numba.Kernel | None:
        module = _numba()
        return None if module is None else module.Kernel.from_index(self.index, self.weights)

    def _score(self, images: Integers, samples: Integers) -> Floats:
        lengths = self.index.sample_lengths(samples)
        if self._compiled is not None:
            return self._compiled(images, samples, lengths)
        return self.score_with_numpy(images, samples, lengths)

    def score_with_numpy(self, images: Integers, samples: Integers, lengths: Integers) -> Floats:
        """Return CIDEr-D computed by NumPy: the reference implementation of the compiled kernel.

        images: image indices (S,). samples: token ids (S, T). lengths: the number of tokens of each sample (S,).
        """
        return similarities(_count_samples(self.index, images, samples, lengths), self.weights)


class BleuReward(_Reward):
    """BLEU-4, in 0..1, of each sample; the arguments are those of `CiderD`, and `df` has no effect."""

    def _score(self, images: Integers, samples: Integers) -> Floats:
        counts = _count_samples(self.index, images, samples, self.index.sample_lengths(samples))
        return BleuStatistics.from_counts(counts).scores()[:, MAX_ORDER - 1]


def _count_samples(index: ReferenceIndex, images: Integers, samples: Integers, lengths: Integers) -> NgramCounts:
    """Return the n-grams of samples (S, T) of the given lengths (S,) and of the references of their images (S,).

    N-grams in no reference and no document have numbers above those of the table.
    """
    distinct, which = np.unique(images, return_inverse=True)
    sizes = index.starts[distinct + 1] - index.starts[distinct]
    firsts = np.cumsum(sizes) - sizes
    captions = np.repeat(index.starts[distinct] - firsts, sizes) + np.arange(sizes.sum())
    pairs = Pairs.from_counts(firsts[which], sizes[which])
    tokens = Captions(samples[np.arange(samples.shape[1]) < lengths[:, np.newaxis]], lengths)
    candidates, references, overlaps = [], [], []
    found = zip(_look_up(index, tokens), index.bags, index.table.sizes(), strict=True)
    for (numbers, sample_indices), bag, known in found:
        num_ngrams = max(known, int(numbers.max(initial=-1)) + 1)
        candidates.append(Bag.count(numbers, sample_indices, len(lengths), num_ngrams))
        references.append(bag.select(captions))
        overlaps.append(overlap(candidates[-1], references[-1], pairs, num_ngrams))
    return NgramCounts(candidates, references, overlaps, pairs, lengths, index.lengths[captions])


def _look_up(index: ReferenceIndex, captions: Captions) -> Iterator[tuple[Integers, Integers]]:
    """Yield the numbers and the captions of all n-grams, length by length; unknown n-grams have new numbers."""
    num_remaining, caption_indices = captions.num_remaining(), captions.caption_indices()
    prefixes = np.zeros(len(captions.tokens), np.int64)
    for length, known in enumerate(index.table.sizes(), start=1):
        starts = np.flatnonzero(num_remaining >= length)
        prefix, last = prefixes[starts], captions.tokens[starts + length - 1]
        numbers = index.table.find(length, prefix, last)
        new = numbers < 0
        numbers[new] = known + np.unique((prefix[new] << 32) | last[new], return_inverse=True)[1]
        prefixes[starts] = numbers
        yield numbers, caption_indices[starts]
