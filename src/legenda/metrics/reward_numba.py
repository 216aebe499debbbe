"""CIDEr-D on token ids as a kernel compiled by numba; `legenda.metrics.reward` uses NumPy without it."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numba
import numpy as np
from numpy.typing import NDArray

from legenda.metrics.cider import SIGMA, norms_of
from legenda.metrics.document_frequencies import inverse_document_frequencies
from legenda.metrics.ngrams import MAX_ORDER, Floats, Integers
from legenda.metrics.reward_index import ReferenceIndex

_HALF = 32
_SEED = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(29)


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function at its first call, without the GIL, and cache it on disk where the folder is writable."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no writable folder for the cache
        return numba.njit(nogil=True)(function)


class Kernel(NamedTuple):
    """The arrays of a reference index that the kernel reads.

    slots: a hash table of all n-grams, shape (a power of 2, 4): the number of the first n - 1 tokens, the last token,
        the n-gram's number and its document frequency; -1 in free slots. The hash is computed from all tokens, so that
        the slots of all n-grams of a sample are known at once, and memory accesses, which dominate, overlap.
    offsets: what is added to the index' numbers of each length in the hash table; the last one is the number of the
        empty n-gram.
    weights: the inverse document frequency of each frequency.
    starts, numbers, counts: the references' bags. norms: of each reference and length of n-gram. lengths: of each
        reference. images: the first reference of each image.
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
    def from_index(cls, index: ReferenceIndex, weights: list[Floats]) -> Self:
        """Prepare an index and the weights of its n-grams."""
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
            np.stack([norms_of(*each) for each in zip(index.bags, weights, strict=True)], axis=1),
            index.lengths,
            index.starts,
        )

    def __call__(self, images: Integers, samples: Integers, lengths: Integers) -> Floats:
        """Return CIDEr-D of samples (S, T) with `lengths` tokens (S,), for image indices (S,)."""
        return _score(images, np.ascontiguousarray(samples), lengths, *self)


@_compile
def _extend_hash(hashed, token):
    """Return the hash of an n-gram from that of its first n - 1 tokens."""
    hashed = (hashed ^ np.uint64(token)) * _FACTOR
    return hashed ^ (hashed >> _SHIFT)


@_compile
def _bit(number):
    """Return one of 64 bits for a number: the key of a Bloom filter."""
    return np.uint64(1) << np.uint64(number & 63)


@_compile
def _fill(slots, keys, counts, hashes, before, offset):
    """Insert the n-grams of one length into the hash table and return their hashes."""
    mask = np.uint64(len(slots) - 1)
    found = np.empty(len(keys), np.uint64)
    for number in range(len(keys)):
        prefix, token = keys[number] >> _HALF, keys[number] & ((1 << _HALF) - 1)
        found[number] = _extend_hash(hashes[prefix], token)
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
    first_slots = np.empty((MAX_ORDER, longest), np.int64)  # the first slot to probe for each n-gram
    heads = np.empty((MAX_ORDER, longest), np.int64)  # the contents of these slots
    prefixes = np.empty(longest, np.int64)  # the number of the n-gram at each position, -1 if unknown
    groups = np.empty(longest, np.int64)  # the first position of an equal n-gram
    shorter = np.empty(longest, np.int64)  # the same for n-grams shorter by one
    times = np.empty(longest, np.int64)
    values = np.empty(longest)
    known_positions = np.empty(longest, np.int64)
    for sample in range(len(samples)):
        tokens, length = samples[sample], lengths[sample]
        first, last = ref_starts[images[sample]], ref_starts[images[sample] + 1]
        for position in range(length):
            hashed = _SEED
            for order in range(min(MAX_ORDER, length - position)):
                hashed = _extend_hash(hashed, tokens[position + order])
                first_slots[order, position] = np.int64(hashed & np.uint64(last_slot))
        for order in range(MAX_ORDER):
            for position in range(length - order):
                heads[order, position] = slots[first_slots[order, position], 0]
        sums = np.zeros(last - first)
        prefixes[:length] = offsets[MAX_ORDER]
        groups[:length] = 0
        for order in range(MAX_ORDER):
            groups, shorter = shorter, groups
            for position in range(length - order):
                token = tokens[position + order]
                group = position
                for earlier in range(position):
                    if shorter[earlier] == shorter[position] and tokens[earlier + order] == token:
                        group = groups[earlier]
                        break
                groups[position] = group
                if group != position:
                    times[group] += 1
                    continue
                times[position], values[position] = 1, weights[0]
                prefix, head, slot = prefixes[position], heads[order, position], first_slots[order, position]
                prefixes[position] = -1
                while prefix >= 0 and head >= 0:
                    if head == prefix and slots[slot, 1] == token:
                        prefixes[position], values[position] = slots[slot, 2], weights[slots[slot, 3]]
                        break
                    slot = (slot + 1) & last_slot
                    head = np.int64(slots[slot, 0])
            size, norm, bits = 0, 0.0, np.uint64(0)
            for position in range(length - order):
                known = prefixes[groups[position]]
                prefixes[position] = known
                if groups[position] == position:
                    norm += (times[position] * values[position]) ** 2
                    if known >= 0:
                        known_positions[size] = position
                        bits |= _bit(known)
                        size += 1
            for reference in range(first, last):
                both_norms = np.sqrt(norm) * norms[reference, order]
                if both_norms == 0:
                    continue
                product = 0.0
                for entry in range(starts[order][reference], starts[order][reference + 1]):
                    ngram = offsets[order] + np.int64(numbers[order][entry])
                    if not bits & _bit(ngram):
                        continue  # nearly all of the references' other n-grams
                    for position in known_positions[:size]:
                        if prefixes[position] == ngram:
                            weight = counts[order][entry] * values[position]
                            product += min(times[position] * values[position], weight) * weight
                            break
                sums[reference - first] += product / both_norms
        for reference in range(first, last):
            gap = max(0, length - 1) - max(0, ref_lengths[reference] - 1)
            scores[sample] += sums[reference - first] * np.exp(-(gap**2) / (2 * SIGMA**2))
        scores[sample] *= 10 / MAX_ORDER / (last - first)
    return scores
