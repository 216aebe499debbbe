"""All metrics of a set of captions in one call."""

import inspect
import re
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from legenda.errors import ConfigError, DataError, LegendaError, did_you_mean
from legenda.metrics.metric import CaptionSet, Measure, Metric
from legenda.registry import PLUGIN_HINT, Registry
from legenda.text import ptb_tokenize
from legenda.text.ngrams import MAX_ORDER, DocumentFrequencies

METRICS: Registry[Metric] = Registry(
    "metric",
    {
        **{f"BLEU-{n}": f"legenda.metrics.bleu:BLEU_{n}" for n in range(1, MAX_ORDER + 1)},
        "ROUGE-L": "legenda.metrics.rouge:ROUGE_L",
        "CIDEr-D": "legenda.metrics.cider:CIDER_D",
        "CIDEr": "legenda.metrics.cider:CIDER",
        "METEOR": "legenda.metrics.meteor:METEOR",
        "SPICE": "legenda.metrics.spice:SPICE",
    },
)
"""Every metric of captions, in the order of the results."""

MAX_WORDS = 1000
"""Words of the longest caption that is scored, raw text: METEOR takes quadratic time, ROUGE-L quadratic memory."""
_MAX_NAMED = 3
"""Ids of images that a message names."""
_SPACES = {ord(sign): " " for sign in "\n\r\v\f\x1c\x1d\x1e\u2028\u2029"}

Image = TypeVar("Image", bound=Hashable)
References = Mapping[Image, Sequence[str]]
Documents = DocumentFrequencies | Mapping[str, Sequence[str]] | Mapping[int, Sequence[str]]
"""Document frequencies, or the references in which they are counted."""
_Values = tuple[float | None, Sequence[float | None]]


@dataclass(frozen=True)
class Scores(Generic[Image]):
    """The scores of a set of captions; `scores["CIDEr-D"]` is that of the corpus.

    corpus: the score of each metric, or None where it could not be computed for a reason in `notices`.
    per_image: the same for each image. CIDEr and CIDEr-D are in 0..10, all others in 0..1. ROUGE-L, CIDEr, CIDEr-D and
        SPICE of the corpus are means over images; its BLEU and METEOR are computed from statistics summed over images.
    documents, df: the number of documents of the document frequencies of CIDEr-D and CIDEr, and their source; None
        where neither was computed.
    counts: for each image the counts of the metrics that sum them.
    """

    corpus: dict[str, float | None]
    per_image: dict[Image, dict[str, float | None]]
    documents: int | None
    df: str | None
    notices: tuple[str, ...] = ()
    counts: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> float | None:
        return self.corpus[name]

    def to_dict(self) -> dict[str, object]:
        """Return `corpus`, `documents`, `df`, `notices` and `per_image` for JSON, with image ids as strings."""
        return {
            "corpus": self.corpus,
            "documents": self.documents,
            "df": self.df,
            "notices": list(self.notices),
            "per_image": {str(image): scores for image, scores in self.per_image.items()},
        }


_SCORED = "the references scored"
"""The default source of document frequencies."""


def evaluate(
    predictions: Mapping[Image, str],
    references: Mapping[Image, Sequence[str]],
    *,
    metrics: str | Sequence[str] = "auto",
    df: Documents | None = None,
    tokenized: bool = False,
    spice_jars: str | Path | None = None,
) -> Scores[Image]:
    """Score one caption an image against its references, as pycocoevalcap does.

    Both mappings have the same image ids as keys. An image has one predicted caption, which may be empty, and at least
    one reference. Captions are raw text, tokenized by `ptb_tokenize` with line breaks as spaces; with `tokenized` they
    are tokens joined by spaces.

    metrics: names from METRICS, or "BLEU" for BLEU-1 to BLEU-4. "auto" means all but CIDEr, those that users registered
        included; if one that needs Java cannot be computed it is None, and a warning gives the reason: METEOR needs the
        extra `meteor`, SPICE also its jars. "fast", which may stand among names, means those of "auto" without Java.
        What pycocoevalcap calls "CIDEr" is CIDEr-D here.
    df: the document frequencies of CIDEr-D and CIDEr, or references to count them in, in the form of `references`. None
        counts them in `references`, which must then be of many images: for a single image CIDEr-D is 0.
    spice_jars: the folder of SPICE's jars; by default the one in the environment variable LEGENDA_SPICE_JARS.

    Raise DataError for ids without a counterpart, images without references, captions that are not text and those of
    more than MAX_WORDS words, and ConfigError for an unknown metric and for a named metric whose program is missing.
    """
    columns = {name: METRICS.get(name) for name in _columns(metrics)}
    _check(predictions, references)
    tokenize = (lambda caption: caption) if tokenized else _tokenize
    candidates = [tokenize(caption) for caption in predictions.values()]
    groups = [[tokenize(caption) for caption in references[image]] for image in predictions]
    frequencies, source = (None, _SCORED) if df is None else resolve_document_frequencies(df, (), tokenized=tokenized)
    captions = CaptionSet(candidates, groups, frequencies, spice_jars)

    values: dict[str, _Values] = {}
    measured: dict[Measure, ArrayLike | Sequence[float | None]] = {}
    counts: dict[str, Sequence[Sequence[float]]] = {}
    notices: list[str] = []
    for name, metric in columns.items():
        if metric.measure not in measured:
            try:
                measured[metric.measure] = metric.measure(captions)
            except LegendaError as error:
                if metrics != "auto" or not metric.needs_java:
                    raise
                notices.append(f"no {name}: {error}")
                values[name] = None, [None] * len(candidates)
                continue
        result = measured[metric.measure]
        if metric.total is None:
            column: list[float | None] = np.asarray(result, object).tolist()
            values[name] = _mean(column), column
        else:
            parts = np.asarray(result)
            counts[name] = parts.tolist()
            values[name] = float(metric.total(parts.sum(axis=0))), metric.total(parts).tolist()
    if notices:
        warnings.warn("; ".join(notices), stacklevel=2)

    has_documents = any(metric.needs_document_frequencies for metric in columns.values())
    return Scores(
        {name: values[name][0] for name in columns},
        {image: {name: values[name][1][n] for name in columns} for n, image in enumerate(predictions)},
        (len(groups) if frequencies is None else frequencies.documents) if has_documents else None,
        source if has_documents else None,
        tuple(notices),
        counts,
    )


def _columns(metrics: str | Sequence[str]) -> list[str]:
    """Return the metrics to compute, in the order of METRICS."""
    default = {name: metric for name in METRICS if (metric := METRICS.get(name)).by_default}
    if metrics == "auto":
        return list(default)
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    if not names:
        raise ConfigError('metrics names no metric; give names or "auto"')
    if "auto" in names:
        raise ConfigError("auto stands by itself; beside other metrics, give fast and the names of those that it lacks")
    if "fast" in names:
        names += [name for name, metric in default.items() if not metric.needs_java]
        names.remove("fast")
    for name in names:
        if name not in (*METRICS, "BLEU"):
            hint = did_you_mean(str(name), [*METRICS, "BLEU", "fast", "auto"])
            raise ConfigError(f"there is no metric {name!r}; {hint}{PLUGIN_HINT}")
    return [name for name in METRICS if name in names or ("BLEU" in names and re.fullmatch(r"BLEU-\d", name))]


def describe_metrics() -> str:
    """Return what the library's metrics and their sets are, for the help of a command."""
    metrics = {name: METRICS.get(name) for name in METRICS.own}
    fast, java, named = (
        ", ".join(name for name, metric in metrics.items() if (metric.by_default, metric.needs_java) == kind)
        for kind in ((True, False), (True, True), (False, False))
    )
    return f"Names of metrics; fast is {fast}; auto is these and {java} where their programs are; and {named}."


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the images that have a value, exact in any order of them; None without one."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


F = TypeVar("F", bound=Callable[[Sequence[str], Sequence[Sequence[str]]], Sequence[float]])


def register_metric(name: str, *, lower_is_better: bool = False) -> Callable[[F], F]:
    """Return a decorator that adds a function as a metric, which reports explain by the first line of its docstring.

    The function takes the tokenized captions of images and the references of each, and returns a number for each image;
    the score is their mean.
    """

    def decorate(function: F) -> F:
        def measure(captions: CaptionSet) -> list[float]:
            returned, count = function(captions.captions, captions.references), len(captions.captions)
            with suppress(TypeError, ValueError):  # what is no number, or no sequence
                values = [float(value) for value in returned]
                if len(values) == count and all(map(isfinite, values)):
                    return values
            raise ConfigError(f"the metric {name!r} must return a finite number for each of {count} images")

        description = (inspect.getdoc(function) or name).splitlines()[0]
        METRICS.add(name, Metric(measure, description, lower_is_better=lower_is_better), function.__module__)
        return function

    return decorate


def resolve_document_frequencies(
    df: Documents | None,
    groups: Sequence[Sequence[Sequence[str]]],
    *,
    tokenized: bool = False,
) -> tuple[DocumentFrequencies, str]:
    """Return document frequencies and their source; with None they are counted in `groups` of tokens."""
    if df is None:
        return DocumentFrequencies.from_references(groups), _SCORED
    if isinstance(df, DocumentFrequencies):
        return df, "document frequencies passed as df"
    if not df:
        raise DataError("df holds no references to count document frequencies in; give those of at least one image")
    _check_references(df.items())
    documents = (as_tokens(captions, tokenized=tokenized) for captions in df.values())
    return DocumentFrequencies.from_references(documents), "references passed as df"


def as_tokens(captions: Iterable[str], *, tokenized: bool = False) -> list[list[str]]:
    """Return the tokens of captions, which are raw text, or with `tokenized` tokens joined by spaces."""
    return [caption.split() if tokenized else _tokenize(caption).split() for caption in captions]


def _tokenize(caption: str) -> str:
    tokens = ptb_tokenize(caption if caption.isprintable() else caption.translate(_SPACES))
    if len(tokens) > MAX_WORDS:
        raise DataError(f"the caption {caption[:60]!r}... has {len(tokens):,} words; at most {MAX_WORDS:,} are scored")
    return " ".join(tokens)


def _check(predictions: Mapping[Image, str], references: References[Image]) -> None:
    if not predictions:
        raise DataError("there are no predictions to score; give a caption for each image with references")
    if missing := [image for image in references if image not in predictions]:
        raise DataError(
            f"the predictions lack {_name_some(missing)}, which have references; predict them or leave them out"
        )
    if extra := [image for image in predictions if image not in references]:
        raise DataError(f"there are no references for {_name_some(extra)}; add them or leave out these predictions")
    for image, caption in predictions.items():
        if not isinstance(caption, str):
            raise DataError(f"the prediction for image {image!r} is {type(caption).__name__}; give one caption as text")
    _check_references(references.items())


def _check_references(references: Iterable[tuple[object, Sequence[str]]]) -> None:
    for image, captions in references:
        if isinstance(captions, str) or not isinstance(captions, Sequence):
            raise DataError(f"the references of image {image!r} are {type(captions).__name__}; give a list of captions")
        if not captions:
            raise DataError(
                f"image {image!r} has an empty list of references; give at least one or leave the image out"
            )
        if wrong := [caption for caption in captions if not isinstance(caption, str)]:
            raise DataError(f"a reference of image {image!r} is {type(wrong[0]).__name__}; give captions as text")


def _name_some(images: Sequence[object]) -> str:
    names = ", ".join(repr(image) for image in images[:_MAX_NAMED])
    more = len(images) - _MAX_NAMED
    return f"{len(images)} image(s): {names}" + (f" and {more} more" if more > 0 else "")
