"""The record of a metric of captions: how it measures each image, how a corpus is scored, and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from legenda.text.ngrams import Comparison, DocumentFrequencies


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
    def words(self) -> Comparison:
        """The n-grams of the captions' words beside those of their references."""
        candidates = [caption.split() for caption in self.captions]
        return Comparison(candidates, [[reference.split() for reference in group] for group in self.references])


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
    needs_document_frequencies: whether it weights n-grams by document frequencies.
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
