"""CIDEr-D on token ids as one compiled loop. Needs numba; `legenda.metrics.reward` falls back to numpy without it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numba
import numpy as np
from numpy.typing import NDArray

from legenda.metrics.cider import SIGMA
from legenda.metrics.document_frequencies import inverse_document_frequencies
from legenda.metrics.ngrams import LONGEST, Bag, Floats, Integers
from legenda.metrics.reward_index import ReferenceIndex

_HALF = 32
_SEED = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(29)


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled at its first call, to run without Python's lock, and kept on disk where there is a place for it."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder that numba may write to
        return numba.njit(nogil=True)(function)


@dataclass(frozen=True)
class Kernel:
    """The index in the form that the loop reads.

    slots: a hash table of all n-grams, shape (a power of 2, 4): the number of the first n - 1 tokens, the last token,
        the n-gram's number and its document frequency; -1 in free ones. The hash is that of all tokens, so that where
        to look is known for every n-gram of a sample at once, and the waits for memory, which take most of the time,
        overlap.
    offsets: numbers in the hash table are those of the index plus this for each length; the last is the number of no
        tokens.
    weights: the inverse document frequency of every frequency.
    starts, numbers, counts: the references' bags; norms, lengths: one for each reference, norms for each length of
        n-gram; images: where each image's references begin.
    """

    slots: NDArray[np.int32]
    offsets: Integers
    weights: Floats
    starts: tuple[Integers, ...]
    numbers: tuple[Integers, ...]
    counts: tuple[Integers, ...]
    norms: Floats
    lengths: Integers
    images: Integers

    @classmethod
    def on(cls, index: ReferenceIndex, weights: list[Floats]) -> Self:
        """Prepares an index and its n-grams' weights."""
        sizes = index.table.sizes()
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        slots = np.full((1 << (2 * sum(sizes)).bit_length(), 4), -1, np.int32)
        hashes, before = np.array([_SEED]), int(offsets[-1])
        for keys, counts, offset in zip(index.table.keys, index.counts, offsets.tolist(), strict=False):
            hashes, before = _fill(slots, keys, counts, hashes, before, offset), offset
        most = max(int(counts.max(initial=0)) for counts in index.counts)
        return cls(
            slots,
            offsets,
            inverse_document_frequencies(np.arange(most + 1), index.documents),
            tuple(bag.starts for bag in index.bags),
            tuple(bag.numbers for bag in index.bags),
            tuple(bag.counts for bag in index.bags),
            np.stack([_norms(bag, weight) for bag, weight in zip(index.bags, weights, strict=True)], axis=1),
            index.lengths,
            index.starts,
        )

    def __call__(self, images: Integers, samples: Integers, lengths: Integers) -> Floats:
        """CIDEr-D of samples (samples, T) of so many tokens, for images by number."""
        return _score(
            images,
            np.ascontiguousarray(samples),
            lengths,
            self.slots,
            self.offsets,
            self.weights,
            self.starts,
            self.numbers,
            self.counts,
            self.norms,
            self.lengths,
            self.images,
        )


def _norms(bag: Bag, weights: Floats) -> Floats:
    squares = (bag.counts * weights[bag.numbers]) ** 2
    return np.sqrt(np.bincount(bag.owners(), squares, minlength=len(bag.starts) - 1))


@_compile
def _continued(hashed, token):
    """The hash of an n-gram from that of its first n - 1 tokens."""
    hashed = (hashed ^ np.uint64(token)) * _FACTOR
    return hashed ^ (hashed >> _SHIFT)


@_compile
def _bit(number):
    """One of 64 bits for a number."""
    return np.uint64(1) << np.uint64(number & 63)


@_compile
def _fill(slots, keys, counts, hashes, before, offset):
    """Puts the n-grams of one length into the table; gives their hashes."""
    mask = np.uint64(len(slots) - 1)
    found = np.empty(len(keys), np.uint64)
    for number in range(len(keys)):
        prefix, token = keys[number] >> _HALF, keys[number] & ((1 << _HALF) - 1)
        found[number] = _continued(hashes[prefix], token)
        slot = np.int64(found[number] & mask)
        while slots[slot, 0] >= 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot, 0], slots[slot, 1] = before + prefix, token
        slots[slot, 2], slots[slot, 3] = offset + number, counts[number]
    return found


@_compile
def _score(images, samples, lengths, slots, offsets, weights, starts, numbers, counts, norms, ref_lengths, ref_starts):
    scores = np.zeros(len(samples))
    longest, last_slot = samples.shape[1], len(slots) - 1
    places = np.empty((LONGEST, longest), np.int64)  # the slot where every n-gram would be
    heads = np.empty((LONGEST, longest), np.int64)  # what is there
    prefixes = np.empty(longest, np.int64)  # the number of the n-gram at every place, -1 for an unknown one
    groups = np.empty(longest, np.int64)  # the first place of an n-gram that equals the one here
    shorter = np.empty(longest, np.int64)  # the same for n-grams shorter by one
    times = np.empty(longest, np.int64)
    values = np.empty(longest)
    mine = np.empty(longest, np.int64)  # the places of the known n-grams
    for sample in range(len(samples)):
        row, length = samples[sample], lengths[sample]
        first, last = ref_starts[images[sample]], ref_starts[images[sample] + 1]
        for place in range(length):
            hashed = _SEED
            for order in range(min(LONGEST, length - place)):
                hashed = _continued(hashed, row[place + order])
                places[order, place] = np.int64(hashed & np.uint64(last_slot))
        for order in range(LONGEST):
            for place in range(length - order):
                heads[order, place] = slots[places[order, place], 0]
        sums = np.zeros(last - first)
        prefixes[:length] = offsets[LONGEST]
        groups[:length] = 0
        for order in range(LONGEST):
            groups, shorter = shorter, groups
            for place in range(length - order):
                token = row[place + order]
                group = place
                for earlier in range(place):
                    if shorter[earlier] == shorter[place] and row[earlier + order] == token:
                        group = groups[earlier]
                        break
                groups[place] = group
                if group != place:
                    times[group] += 1
                    continue
                times[place], values[place] = 1, weights[0]
                prefix, head, slot = prefixes[place], heads[order, place], places[order, place]
                prefixes[place] = -1
                while prefix >= 0 and head >= 0:
                    if head == prefix and slots[slot, 1] == token:
                        prefixes[place], values[place] = slots[slot, 2], weights[slots[slot, 3]]
                        break
                    slot = (slot + 1) & last_slot
                    head = np.int64(slots[slot, 0])
            size, norm, bits = 0, 0.0, np.uint64(0)
            for place in range(length - order):
                known = prefixes[groups[place]]
                prefixes[place] = known
                if groups[place] == place:
                    norm += (times[place] * values[place]) ** 2
                    if known >= 0:
                        mine[size] = place
                        bits |= _bit(known)
                        size += 1
            for reference in range(first, last):
                both_norms = np.sqrt(norm) * norms[reference, order]
                if both_norms == 0:
                    continue
                product = 0.0
                for there in range(starts[order][reference], starts[order][reference + 1]):
                    theirs = offsets[order] + np.int64(numbers[order][there])
                    if not bits & _bit(theirs):
                        continue  # as nearly always, for what the sample does not have
                    for place in mine[:size]:
                        if prefixes[place] == theirs:
                            weight = counts[order][there] * values[place]
                            product += min(times[place] * values[place], weight) * weight
                            break
                sums[reference - first] += product / both_norms
        for reference in range(first, last):
            gap = max(0, length - 1) - max(0, ref_lengths[reference] - 1)
            scores[sample] += sums[reference - first] * np.exp(-(gap**2) / (2 * SIGMA**2))
        scores[sample] *= 10 / LONGEST / (last - first)
    return scores
