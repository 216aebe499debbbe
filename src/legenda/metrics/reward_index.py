"""The n-grams of references as token ids, counted once for the rewards of self-critical training."""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, get_args

import numpy as np

from legenda.errors import ConfigError, DataError, did_you_mean
from legenda.io import atomic_write
from legenda.metrics.document_frequencies import DocumentFrequencies, as_json, count_document_frequencies, read_arrays
from legenda.metrics.ngrams import MAX_ORDER, TOKEN_LIMIT, Bag, Captions, Integers, NgramTable, number_ngrams

Eos = Literal["keep", "append", "drop"]
Ids = Sequence[int] | Integers
References = Sequence[Sequence[Ids]] | Mapping[Hashable, Sequence[Ids]]

_FORMAT = "legenda reward index 1"
_HINT = "give a file that CiderD.save or BleuReward.save wrote"


@dataclass(frozen=True)
class ReferenceIndex:
    """All references of a data set as bags of n-grams.

    table, counts, documents: the known n-grams, their document frequencies and the number of documents.
    bags: the references' bags for each length of n-gram, ordered by image.
    lengths: the number of tokens of each reference; image i has the references `starts[i] : starts[i + 1]`.
    indices: the index of each image id.
    eos_token_id, counts_eos: the id that ends a sample, and whether it counts as a token.
    """

    table: NgramTable
    counts: tuple[Integers, ...]
    documents: int
    bags: tuple[Bag, ...]
    lengths: Integers
    starts: Integers
    indices: Mapping[Hashable, int]
    eos_token_id: int
    counts_eos: bool

    @classmethod
    def build(
        cls,
        references: References,
        *,
        eos_token_id: int,
        eos: Eos,
        max_reference_length: int | None,
        df: Literal["references", "captions"] | DocumentFrequencies,
    ) -> Self:
        """Count references; see `legenda.metrics.CiderD` for the arguments."""
        if eos not in get_args(Eos):
            raise ConfigError(f"eos is {eos!r}; {did_you_mean(str(eos), get_args(Eos))}")
        ids = list(references) if isinstance(references, Mapping) else range(len(references))
        groups = list(references.values()) if isinstance(references, Mapping) else references
        for image, group in zip(ids, groups, strict=True):
            if not len(group):
                raise DataError(f"image {image!r} has no references; give at least one or leave the image out")
        sizes = np.fromiter(map(len, groups), np.int64, len(groups))
        lengths: list[int] = []
        tokens = np.fromiter(_tokens((c for group in groups for c in group), eos_token_id, eos, lengths), np.int32)
        captions = Captions(tokens, np.array(lengths, np.int64))
        if isinstance(df, DocumentFrequencies):
            base, base_counts, documents = _table_of_ids(df), df.counts, df.documents
        elif df in ("references", "captions"):
            documents = len(groups) if df == "references" else len(lengths)
            owner = np.repeat(np.arange(len(groups)), sizes) if df == "references" else np.arange(len(lengths))
            base, base_counts = count_document_frequencies(captions, owner.astype(np.int32))
        else:
            raise ConfigError(f"df is {df!r}; {did_you_mean(str(df), ['references', 'captions'])}")
        if max_reference_length is not None:
            captions = captions.truncate(max_reference_length)
        keys, counts, bags = [], [], []
        for ngrams, known_counts in zip(number_ngrams(captions, base), base_counts, strict=True):
            bag = Bag.count(ngrams.numbers, ngrams.caption_indices, len(captions.lengths), len(ngrams.keys))
            keys.append(ngrams.keys)
            bags.append(Bag(bag.starts, bag.numbers.astype(np.uint32), bag.counts.astype(np.uint16)))
            counts.append(np.zeros(len(ngrams.keys), np.int64))
            counts[-1][ngrams.base_numbers] = known_counts
        return cls(
            NgramTable(tuple(keys)),
            tuple(counts),
            documents,
            tuple(bags),
            captions.lengths,
            np.concatenate([[0], np.cumsum(sizes)]),
            {image: position for position, image in enumerate(ids)},
            eos_token_id,
            eos != "drop",
        )

    def image_indices(self, images: Iterable[Hashable]) -> Integers:
        """Return the indices of image ids; raise DataError for an id without references."""
        ids = images.tolist() if hasattr(images, "tolist") else images
        try:
            return np.array([self.indices[image] for image in ids], np.int64)
        except KeyError as error:
            raise DataError(
                f"there are no references for image {error.args[0]!r}; add them or give the ids of the references"
            ) from None

    def sample_lengths(self, samples: Integers) -> Integers:
        """Return the number of tokens of each sample, (S,), from token ids (S, T)."""
        is_eos = samples == self.eos_token_id
        lengths = np.where(is_eos.any(axis=1), is_eos.argmax(axis=1) + self.counts_eos, samples.shape[1])
        bad = (np.arange(samples.shape[1]) < lengths[:, np.newaxis]) & ((samples < 0) | (samples >= TOKEN_LIMIT))
        if bad.any():
            raise DataError(f"a sample contains the id {samples[bad][0]}; give ids from 0 to {TOKEN_LIMIT - 1}")
        return lengths

    def save(self, path: str | Path) -> None:
        """Write a safetensors file; image ids must be strings or integers."""
        from safetensors.numpy import save_file

        arrays: dict[str, np.ndarray] = {"lengths": self.lengths, "starts": self.starts}
        for n, (keys, counts, bag) in enumerate(zip(self.table.keys, self.counts, self.bags, strict=True), start=1):
            arrays |= {f"keys.{n}": keys, f"counts.{n}": counts, f"bags.{n}.starts": bag.starts}
            arrays |= {f"bags.{n}.numbers": bag.numbers, f"bags.{n}.counts": bag.counts}
        notes = {
            "format": _FORMAT,
            "documents": str(self.documents),
            "names": as_json(self.indices, "image ids"),
            "end": json.dumps([self.eos_token_id, self.counts_eos]),
        }
        with atomic_write(path) as partial:
            save_file(arrays, partial, notes)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote; raise DataError, naming the file, for any other."""
        arrays, notes = read_arrays(path, _FORMAT, _HINT)
        lengths = range(1, MAX_ORDER + 1)
        eos_token_id, counts_eos = json.loads(notes["end"])
        return cls(
            NgramTable(tuple(arrays[f"keys.{n}"] for n in lengths)),
            tuple(arrays[f"counts.{n}"] for n in lengths),
            int(notes["documents"]),
            tuple(Bag(*(arrays[f"bags.{n}.{part}"] for part in ("starts", "numbers", "counts"))) for n in lengths),
            arrays["lengths"],
            arrays["starts"],
            {image: position for position, image in enumerate(json.loads(notes["names"]))},
            eos_token_id,
            counts_eos,
        )


def _tokens(captions: Iterable[Ids], eos_token_id: int, eos: Eos, lengths: list[int]) -> Iterator[int]:
    """Yield the tokens of references up to EOS, with or without EOS itself; append their lengths to `lengths`."""
    for caption in captions:
        ids = caption.tolist() if isinstance(caption, np.ndarray) else list(caption)
        if eos_token_id in ids:
            ids = ids[: ids.index(eos_token_id) + (eos != "drop")]
        elif eos == "append":
            ids.append(eos_token_id)
        if ids and not (min(ids) >= 0 and max(ids) < TOKEN_LIMIT):
            raise DataError(f"the reference {ids} has an id out of range; give ids from 0 to {TOKEN_LIMIT - 1}")
        lengths.append(len(ids))
        yield from ids


def _table_of_ids(df: DocumentFrequencies) -> NgramTable:
    """Return the table of document frequencies whose tokens are ids, with these ids for the table's numbers."""
    if not all(isinstance(token, int) for token in df.token_ids):
        raise DataError("the document frequencies are of words, not of token ids; count them on token ids")
    ids = np.array(list(df.token_ids), np.int64)
    last = 2**32 - 1
    return NgramTable(tuple((keys & ~last) | ids[keys & last] for keys in df.table.keys))
