"""The n-grams of captions, in how many documents each occurs, and tf-idf vectors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

MAX_ORDER = 4
Tokens = Sequence[Hashable]
Ngram = tuple[Hashable, ...]


def ngrams(tokens: Tokens) -> Iterator[Ngram]:
    """Return all n-grams of one to four tokens, the shortest first."""
    tails = [tokens[start:] for start in range(MAX_ORDER)]
    return chain.from_iterable(zip(*tails[:n], strict=False) for n in range(1, MAX_ORDER + 1))


@dataclass(frozen=True)
class DocumentFrequencies:
    """The number of documents, out of `documents`, that contain each n-gram of one to four tokens.

    A document consists of all references of one image, or of one caption in some released codes. Tokens are strings or
    ids.
    """

    counts: Mapping[Ngram, int]
    documents: int

    @classmethod
    def from_references(cls, references: Iterable[Sequence[Tokens]]) -> DocumentFrequencies:
        """Count documents of tokenized references, given image by image.

        For captions as documents, as in the released codes of MD-SAN and M2, give each caption as a separate image.
        """
        counts: Counter[Ngram] = Counter()
        documents = 0
        for group in references:
            documents += 1
            counts.update({ngram for caption in group for ngram in ngrams(caption)})
        return cls(counts, documents)

    @cached_property
    def _log_documents(self) -> float:
        return math.log(self.documents)

    def weight(self, ngram: Ngram) -> float:
        """Return the inverse document frequency, log(documents / frequency), of an n-gram; a frequency of 0 is 1."""
        return self._log_documents - math.log(self.counts.get(ngram) or 1)


class TfIdf(NamedTuple):
    """The tf-idf vectors of a caption: their entries by n-gram, the norm for each length of n-grams, and its tokens."""

    values: dict[Ngram, float]
    norms: list[float]
    length: int

    @staticmethod
    def of(tokens: Tokens, weight: Callable[[Ngram], float]) -> TfIdf:
        """Return the vectors of a tokenized caption; weight: the inverse document frequency of an n-gram."""
        values = {ngram: count * weight(ngram) for ngram, count in Counter(ngrams(tokens)).items()}
        squares = [0.0] * MAX_ORDER
        for ngram, value in values.items():
            squares[len(ngram) - 1] += value * value
        return TfIdf(values, list(map(math.sqrt, squares)), len(tokens))
