"""What a metric of captions is: how it measures each image, how a corpus is scored, and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from legenda.text.ngrams import DocumentFrequencies


@dataclass(frozen=True)
class CaptionSet:
    """One caption of each image and its references, all tokens joined by spaces; iteration gives these pairs.

    df: document frequencies that were counted elsewhere. spice_jars: the folder of SPICE's jars.
    """

    captions: Sequence[str]
    references: Sequence[Sequence[str]]
    df: DocumentFrequencies | None = None
    spice_jars: str | Path | None = None

    def __iter__(self) -> Iterator[tuple[str, Sequence[str]]]:
        return zip(self.captions, self.references, strict=True)

    @cached_property
    def words(self) -> list[tuple[list[str], list[list[str]]]]:
        """The words of each caption, and of its references."""
        return [(caption.split(), [reference.split() for reference in references]) for caption, references in self]

    @cached_property
    def document_frequencies(self) -> DocumentFrequencies:
        """Return `df`, or the document frequencies of the references, an image a document."""
        return self.df or DocumentFrequencies.from_references(references for _, references in self.words)


class Measure(Protocol):
    """Measures the images of a CaptionSet."""

    def __call__(self, captions: CaptionSet, /) -> ArrayLike | Sequence[float | None]:
        """Return a value for each image, None where it has none; or counts `(images, parts)` that are summed."""


@dataclass(frozen=True)
class Metric:
    """A metric of captions.

    measure: returns the value of each image, of which the corpus has the mean; or, for a metric with `total`, counts.
    description: one line for reports.
    total: returns the score `(...)` of counts, either of single images or summed over images, `(..., parts)`.
    needs_java: whether a Java program computes it, so that it may be missing.
    needs_document_frequencies: whether it reads those of the CaptionSet.
    by_default: whether it is computed where no metric is named.
    lower_is_better: whether a better caption has a lower value.
    """

    measure: Measure
    description: str
    total: Callable[[np.ndarray], np.ndarray] | None = None
    needs_java: bool = False
    needs_document_frequencies: bool = False
    by_default: bool = True
    lower_is_better: bool = False
