"""The rewards of self-critical training on token ids: CIDEr-D and BLEU without text, Java or waiting.

The references are counted once for a data set; a call looks up the samples' n-grams and nothing else. With numba (the
extra `fast`) a compiled loop does that, without it numpy; both give the same values. A reward never changes after it
is made, so threads and forked processes may share it.

Sources: Rennie et al., "Self-critical Sequence Training for Image Captioning", 2017; the reward code of the released
AoANet, X-LAN and MD-SAN, to which the values are equal.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from legenda.errors import UserError
from legenda.metrics.bleu import BleuCounts
from legenda.metrics.cider import similarities
from legenda.metrics.document_frequencies import DocumentFrequencies, inverse_document_frequencies
from legenda.metrics.ngrams import LONGEST, Bag, Captions, Floats, Integers, Overlap, Pairs, overlap
from legenda.metrics.reward_index import End, ReferenceIndex, References

if TYPE_CHECKING:
    from legenda.metrics import reward_numba


@functools.cache
def _numba() -> ModuleType | None:
    """The compiled loop, where numba is installed; imported late, for it takes half a second."""
    try:
        from legenda.metrics import reward_numba
    except ImportError:
        return None
    return reward_numba


class _Reward:
    """What the rewards share: an index of references, and the shape of a call."""

    def __init__(
        self,
        references: References,
        *,
        end_id: int = 0,
        end: End = "given",
        clip: int | None = None,
        df: Literal["references", "captions"] | DocumentFrequencies = "references",
    ) -> None:
        self.index = ReferenceIndex.build(references, end_id=end_id, end=end, clip=clip, df=df)

    @classmethod
    def on(cls, index: ReferenceIndex) -> Self:
        """A reward on references that another one has counted: `BleuReward.on(cider_d.index)`."""
        reward = cls.__new__(cls)
        reward.index = index
        return reward

    def save(self, path: str | Path) -> None:
        """Writes the counted references to a safetensors file. Images' names must be text or whole numbers."""
        self.index.save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A reward on the references in a file that `save` wrote; UserError names any other file."""
        return cls.on(ReferenceIndex.load(path))

    def __call__(self, images: Iterable[Hashable], samples: ArrayLike) -> Floats:
        """The reward of every sample, shape (images, rows).

        images: the images' names, or their places where the references came as a sequence; one may occur twice.
        samples: token ids, shape (images, rows, T). A sample lasts to its first end id, or T tokens without one.
        Raises UserError for an image without references, another shape, or an id below 0 before the end.
        """
        array = np.asarray(samples)
        rows = self.index.rows(images)
        if array.ndim != 3 or len(array) != len(rows) or array.dtype.kind not in "iu":
            raise UserError(
                f"The samples have the shape {array.shape} and the type {array.dtype}; give whole numbers of the shape "
                f"({len(rows)}, rows, T) for {len(rows)} image(s)"
            )
        if not array.size:
            array = np.full((*array.shape[:2], 1), self.index.end_id)
        flat = array.reshape(-1, array.shape[2]).astype(np.int64, copy=False)
        return self._score(np.repeat(rows, array.shape[1]), flat).reshape(array.shape[:2])

    def _score(self, images: Integers, samples: Integers) -> Floats:
        raise NotImplementedError


class CiderD(_Reward):
    """CIDEr-D, in 0..10, of samples of token ids.

    references: for every image a list of captions as ids, images by name or in order.
    end_id: the id that ends a sample, and a reference if it is there. What follows it is not read.
    end: "given": the end is a token like any other, in samples and in those references that have it; "added": the same,
        and references without an end get one; "dropped": the end is no token.
    clip: the most tokens of a reference, after which it is cut (an end included); document frequencies are counted
        before the cut. None cuts nothing.
    df: what a document is: "references", all those of an image; "captions", each alone; or frequencies counted before,
        on ids (`DocumentFrequencies.from_references` takes ids as well as words).

    The released codes: AoANet has `end="added", clip=16`; X-LAN "given" with references that end in 0, those of more
    than 16 words cut; MD-SAN and M2 `end="dropped", df="captions"`, where reference words outside the vocabulary need
    ids of their own, since that code compares text.
    """

    @functools.cached_property
    def weights(self) -> list[Floats]:
        """The known n-grams' inverse document frequencies, and at the end that of an unknown one."""
        return [
            inverse_document_frequencies(np.append(counts, 0), self.index.documents) for counts in self.index.counts
        ]

    @functools.cached_property
    def _compiled(self) -> reward_numba.Kernel | None:
        module = _numba()
        return None if module is None else module.Kernel.on(self.index, self.weights)

    def _score(self, images: Integers, samples: Integers) -> Floats:
        lengths = self.index.sample_lengths(samples)
        if self._compiled is not None:
            return self._compiled(images, samples, lengths)
        return self.score_with_numpy(images, samples, lengths)

    def score_with_numpy(self, images: Integers, samples: Integers, lengths: Integers) -> Floats:
        """The reward by numpy alone, of samples (samples, T) of so many tokens, for images by number."""
        counted = _Counted.count(self.index, images, samples, lengths)
        weights = [
            weight[np.minimum(bag.numbers, len(weight) - 1)]
            for bag, weight in zip(counted.candidates, self.weights, strict=True)
        ]
        reference_weights = [weight[bag.numbers] for bag, weight in zip(counted.references, self.weights, strict=True)]
        return similarities(
            counted.candidates,
            counted.references,
            counted.overlaps,
            counted.pairs,
            weights,
            reference_weights,
            lengths,
            counted.reference_lengths,
        )


class BleuReward(_Reward):
    """BLEU-4, in 0..1, of each sample alone; the options are those of `CiderD`, of which `df` changes nothing."""

    def _score(self, images: Integers, samples: Integers) -> Floats:
        lengths = self.index.sample_lengths(samples)
        found = _Counted.count(self.index, images, samples, lengths)
        counts = BleuCounts.count(found.candidates, found.overlaps, found.pairs, lengths, found.reference_lengths)
        return counts.scores()[:, LONGEST - 1]


@dataclass(frozen=True)
class _Counted:
    """Samples beside the references of their images, as arrays. N-grams in no reference and no document have numbers
    above those of the table.
    """

    candidates: list[Bag]
    references: list[Bag]
    overlaps: list[Overlap]
    pairs: Pairs
    reference_lengths: Integers

    @classmethod
    def count(cls, index: ReferenceIndex, images: Integers, samples: Integers, lengths: Integers) -> Self:
        different, which = np.unique(images, return_inverse=True)
        sizes = index.starts[different + 1] - index.starts[different]
        firsts = np.cumsum(sizes) - sizes
        captions = np.repeat(index.starts[different] - firsts, sizes) + np.arange(sizes.sum())
        pairs = Pairs.of(firsts[which], sizes[which])
        tokens = Captions(samples[np.arange(samples.shape[1]) < lengths[:, np.newaxis]], lengths)
        candidates, references, overlaps = [], [], []
        for (numbers, owners), bag, known in zip(_look_up(index, tokens), index.bags, index.table.sizes(), strict=True):
            above = max(known, int(numbers.max(initial=-1)) + 1)
            candidates.append(Bag.count(numbers, owners, len(lengths), above))
            references.append(bag.select(captions))
            overlaps.append(overlap(candidates[-1], references[-1], pairs, above))
        return cls(candidates, references, overlaps, pairs, index.lengths[captions])


def _look_up(index: ReferenceIndex, captions: Captions) -> Iterator[tuple[Integers, Integers]]:
    """For each length the n-grams of captions, the next free numbers for unknown ones, and the captions they are in."""
    room, owners = captions.room(), captions.owners()
    prefixes = np.zeros(len(captions.tokens), np.int64)
    for length, known in enumerate(index.table.sizes(), start=1):
        starts = np.flatnonzero(room >= length)
        before, last = prefixes[starts], captions.tokens[starts + length - 1]
        numbers = index.table.find(length, before, last)
        new = numbers < 0
        numbers[new] = known + np.unique((before[new] << 32) | last[new], return_inverse=True)[1]
        prefixes[starts] = numbers
        yield numbers, owners[starts]
