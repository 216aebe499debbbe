"""References on token ids, counted once for the rewards of self-critical training."""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, get_args

import numpy as np

from legenda.errors import UserError, nearest
from legenda.io import atomic_write
from legenda.metrics.document_frequencies import DocumentFrequencies, as_json, count_all, read_arrays
from legenda.metrics.ngrams import LONGEST, MOST_TOKENS, Bag, Captions, Integers, NgramTable, number

End = Literal["given", "added", "dropped"]
Ids = Sequence[int] | Integers
References = Sequence[Sequence[Ids]] | Mapping[Hashable, Sequence[Ids]]

_FORMAT = "legenda reward index 1"
_HINT = "give a file that a reward's save wrote"


@dataclass(frozen=True)
class ReferenceIndex:
    """All references of a data set as bags of n-grams. Nothing in it ever changes.

    table, counts, documents: the known n-grams, their document frequencies and the number of documents.
    bags: for each length of n-gram, the references' bags, image by image.
    lengths: how many tokens each reference has; `starts[i]` to `starts[i + 1]` are those of image i.
    places: the number of every image's name.
    end_id, counts_end: the id that ends a sample, and whether it is one of its tokens.
    """

    table: NgramTable
    counts: tuple[Integers, ...]
    documents: int
    bags: tuple[Bag, ...]
    lengths: Integers
    starts: Integers
    places: Mapping[Hashable, int]
    end_id: int
    counts_end: bool

    @classmethod
    def build(
        cls,
        references: References,
        *,
        end_id: int,
        end: End,
        clip: int | None,
        df: Literal["references", "captions"] | DocumentFrequencies,
    ) -> Self:
        """Counts references; `legenda.metrics.CiderD` explains the options."""
        if end not in get_args(End):
            raise UserError(f"end is {end!r}; {nearest(str(end), get_args(End))}")
        names = list(references) if isinstance(references, Mapping) else range(len(references))
        groups = list(references.values()) if isinstance(references, Mapping) else references
        for name, group in zip(names, groups, strict=True):
            if not len(group):
                raise UserError(f"Image {name!r} has no references; give at least one or leave the image out")
        sizes = np.fromiter(map(len, groups), np.int64, len(groups))
        lengths: list[int] = []
        tokens = np.fromiter(_tokens((c for group in groups for c in group), end_id, end, lengths), np.int32)
        captions = Captions(tokens, np.array(lengths, np.int64))
        if isinstance(df, DocumentFrequencies):
            base, before, documents = _on_ids(df), df.counts, df.documents
        elif df in ("references", "captions"):
            documents = len(groups) if df == "references" else len(lengths)
            owners = np.repeat(np.arange(len(groups)), sizes) if df == "references" else np.arange(len(lengths))
            base, before = count_all(captions, owners.astype(np.int32))
        else:
            raise UserError(f"df is {df!r}; {nearest(str(df), ['references', 'captions'])}")
        if clip is not None:
            captions = captions.clip(clip)
        keys, counts, bags = [], [], []
        for each, older in zip(number(captions, base), before, strict=True):
            bag = Bag.count(each.numbers, each.owners, len(captions.lengths), len(each.keys))
            keys.append(each.keys)
            bags.append(Bag(bag.starts, bag.numbers.astype(np.uint32), bag.counts.astype(np.uint16)))
            counts.append(np.zeros(len(each.keys), np.int64))
            counts[-1][each.moved] = older
        return cls(
            NgramTable(tuple(keys)),
            tuple(counts),
            documents,
            tuple(bags),
            captions.lengths,
            np.concatenate([[0], np.cumsum(sizes)]),
            {name: place for place, name in enumerate(names)},
            end_id,
            end != "dropped",
        )

    def rows(self, images: Iterable[Hashable]) -> Integers:
        """The numbers of images. Raises UserError for a name that has no references."""
        names = images.tolist() if hasattr(images, "tolist") else images
        try:
            return np.array([self.places[name] for name in names], np.int64)
        except KeyError as error:
            raise UserError(
                f"There are no references for image {error.args[0]!r}; add them or give the names they go by"
            ) from None

    def sample_lengths(self, samples: Integers) -> Integers:
        """How many tokens count of every sample; samples have shape (samples, T)."""
        ends = samples == self.end_id
        first = np.where(ends.any(axis=1), ends.argmax(axis=1) + self.counts_end, samples.shape[1])
        bad = (np.arange(samples.shape[1]) < first[:, np.newaxis]) & ((samples < 0) | (samples >= MOST_TOKENS))
        if bad.any():
            raise UserError(f"A sample holds the id {samples[bad][0]} before its end; ids are 0 to {MOST_TOKENS - 1}")
        return first

    def save(self, path: str | Path) -> None:
        """Writes a safetensors file. The images' names must be text or whole numbers."""
        from safetensors.numpy import save_file

        arrays: dict[str, np.ndarray] = {"lengths": self.lengths, "starts": self.starts}
        for n, (keys, counts, bag) in enumerate(zip(self.table.keys, self.counts, self.bags, strict=True), start=1):
            arrays |= {f"keys.{n}": keys, f"counts.{n}": counts, f"bags.{n}.starts": bag.starts}
            arrays |= {f"bags.{n}.numbers": bag.numbers, f"bags.{n}.counts": bag.counts}
        notes = {
            "format": _FORMAT,
            "documents": str(self.documents),
            "names": as_json(self.places, "images' names"),
            "end": json.dumps([self.end_id, self.counts_end]),
        }
        with atomic_write(path) as partial:
            save_file(arrays, partial, notes)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` wrote. Raises UserError, naming the file, for any other."""
        arrays, notes = read_arrays(path, _FORMAT, _HINT)
        lengths = range(1, LONGEST + 1)
        end_id, counts_end = json.loads(notes["end"])
        return cls(
            NgramTable(tuple(arrays[f"keys.{n}"] for n in lengths)),
            tuple(arrays[f"counts.{n}"] for n in lengths),
            int(notes["documents"]),
            tuple(Bag(*(arrays[f"bags.{n}.{part}"] for part in ("starts", "numbers", "counts"))) for n in lengths),
            arrays["lengths"],
            arrays["starts"],
            {name: place for place, name in enumerate(json.loads(notes["names"]))},
            end_id,
            counts_end,
        )


def _tokens(captions: Iterable[Ids], end_id: int, end: End, lengths: list[int]) -> Iterator[int]:
    """The tokens of references, each up to its end, with or without the end itself; notes their lengths."""
    for caption in captions:
        ids = caption.tolist() if isinstance(caption, np.ndarray) else list(caption)
        if end_id in ids:
            ids = ids[: ids.index(end_id) + (end != "dropped")]
        elif end == "added":
            ids.append(end_id)
        if ids and not (min(ids) >= 0 and max(ids) < MOST_TOKENS):
            raise UserError(f"The reference {ids} has an id that is not from 0 to {MOST_TOKENS - 1}")
        lengths.append(len(ids))
        yield from ids


def _on_ids(frequencies: DocumentFrequencies) -> NgramTable:
    """The table of frequencies with the ids themselves in place of their numbers there, in the same order."""
    if not all(isinstance(token, int) for token in frequencies.words):
        raise UserError("The document frequencies are of words, not of token ids; count them on the ids")
    ids = np.array(list(frequencies.words), np.int64)
    last = 2**32 - 1
    return NgramTable(tuple((keys & ~last) | ids[keys & last] for keys in frequencies.table.keys))
