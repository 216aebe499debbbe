"""All metrics of a set of captions in one call."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from legenda.errors import ConfigError, DataError, LegendaError, did_you_mean
from legenda.metrics.bleu import bleu_scores, bleu_statistics
from legenda.metrics.cider import DocumentFrequencies, cider, cider_d
from legenda.metrics.meteor import count_matches, meteor_scores
from legenda.metrics.rouge import rouge_l
from legenda.metrics.spice import spice
from legenda.registry import PLUGIN_HINT, Registry
from legenda.text import ptb_tokenize

BLEU = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")
Metric = Callable[[Sequence[str], Sequence[Sequence[str]]], Sequence[float]]
"""Takes the tokenized captions of images and the references of each; returns a number for each image."""
METRICS: Registry[Metric | None] = Registry(
    "metric", dict.fromkeys((*BLEU, "ROUGE-L", "CIDEr-D", "CIDEr", "METEOR", "SPICE"))
)
"""Every metric, in the order of the results; those of the library, which are computed together, are None here."""
WITHOUT_JAVA = (*BLEU, "ROUGE-L", "CIDEr-D")
"""The library's metrics that "fast" and "auto" always compute."""

MAX_WORDS = 1000
"""Of a caption, raw text: METEOR takes quadratic time, and ROUGE-L quadratic memory."""
_MAX_NAMED = 3  # ids in an error message
_SPACES = {ord(sign): " " for sign in "\n\r\v\f\x1c\x1d\x1e\u2028\u2029"}

References = Mapping[Any, Sequence[str]]
_Values = tuple[float | None, Sequence[float | None]]


@dataclass(frozen=True)
class Scores:
    """The scores of a set of captions; `scores["CIDEr-D"]` is that of the corpus.

    corpus: the score of each metric, or None where it could not be computed for a reason in `notices`.
    per_image: the same for each image. CIDEr and CIDEr-D are in 0..10, all others in 0..1. ROUGE-L, CIDEr, CIDEr-D and
        SPICE of the corpus are means over images; its BLEU and METEOR are computed from statistics summed over images.
    documents, df: the number of documents of the document frequencies of CIDEr-D and CIDEr, and their source; None
        where neither was computed.
    counts: for each image the statistics that "BLEU" and "METEOR" sum.
    """

    corpus: dict[str, float | None]
    per_image: dict[Any, dict[str, float | None]]
    documents: int | None
    df: str | None
    notices: tuple[str, ...] = ()
    counts: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> float | None:
        return self.corpus[name]

    def to_dict(self) -> dict[str, Any]:
        """Return `corpus`, `documents`, `df`, `notices` and `per_image` for JSON, with image ids as strings."""
        return {
            "corpus": self.corpus,
            "documents": self.documents,
            "df": self.df,
            "notices": list(self.notices),
            "per_image": {str(image): scores for image, scores in self.per_image.items()},
        }


SCORED = "the references scored"
"""The default source of document frequencies."""


def evaluate(
    predictions: Mapping[Any, str],
    references: References,
    *,
    metrics: str | Sequence[str] = "auto",
    df: DocumentFrequencies | References | None = None,
    tokenized: bool = False,
    spice_jars: str | Path | None = None,
) -> Scores:
    """Score one caption an image against its references, as pycocoevalcap does.

    Both mappings have the same image ids as keys. An image has one predicted caption, which may be empty, and at least
    one reference. Captions are raw text, tokenized by `ptb_tokenize` with line breaks as spaces; with `tokenized` they
    are tokens joined by spaces.

    metrics: names from METRICS, or "BLEU" for BLEU-1 to BLEU-4. "fast" means BLEU, ROUGE-L, CIDEr-D and the metrics
        that users registered. "auto" adds METEOR where the extra `meteor` and Java are installed, and SPICE where its
        jars are; if one cannot be computed it is None, and a warning gives the reason. What pycocoevalcap calls "CIDEr"
        is CIDEr-D here.
    df: the document frequencies of CIDEr-D and CIDEr, or references to count them in, in the form of `references`. None
        counts them in `references`, which must then be of many images: for a single image CIDEr-D is 0.
    spice_jars: the folder of SPICE's jars; by default the one in the environment variable LEGENDA_SPICE_JARS.

    Raise DataError for ids without a counterpart, images without references, captions that are not text and those of
    more than MAX_WORDS words, and ConfigError for an unknown metric and for a named metric whose program is missing.
    """
    columns = _columns(metrics)
    _check(predictions, references)
    tokenize = (lambda caption: caption) if tokenized else _tokenize
    candidates = [tokenize(caption) for caption in predictions.values()]
    groups = [[tokenize(caption) for caption in references[image]] for image in predictions]
    words = [candidate.split() for candidate in candidates]
    word_groups = [[caption.split() for caption in group] for group in groups]

    values: dict[str, _Values] = {}
    counts: dict[str, Sequence[Sequence[float]]] = {}
    documents = source = None
    notices: list[str] = []
    if not {*BLEU}.isdisjoint(columns):
        statistics = [bleu_statistics(*image) for image in zip(words, word_groups, strict=True)]
        total, per_image = bleu_scores(np.sum(statistics, axis=0)).tolist(), bleu_scores(statistics).T.tolist()
        values |= {name: (total[n], per_image[n]) for n, name in enumerate(BLEU)}
        counts["BLEU"] = statistics
    if "ROUGE-L" in columns:
        # The reference program splits at single spaces for ROUGE-L, so that an empty caption is one empty token, and at
        # any white space for the others, so that the U+00A0 of "3 1/2" makes two.
        images = zip(candidates, groups, strict=True)
        values["ROUGE-L"] = _mean(
            [rouge_l(candidate.split(" "), [text.split(" ") for text in group]) for candidate, group in images]
        )
    if not {"CIDEr-D", "CIDEr"}.isdisjoint(columns):
        frequencies, source = resolve_document_frequencies(df, word_groups, tokenized=tokenized)
        documents = frequencies.documents
        for name, score in (("CIDEr-D", cider_d), ("CIDEr", cider)):
            if name in columns:
                images = zip(words, word_groups, strict=True)
                values[name] = _mean([score(*image, frequencies) for image in images])

    def run(name: str) -> _Values:
        """Return METEOR or SPICE, which Java programs compute."""
        if name == "SPICE":
            return spice(candidates, groups, spice_jars)
        matches = count_matches(candidates, groups)
        counts["METEOR"] = matches.tolist()
        return float(meteor_scores(matches.sum(0))), meteor_scores(matches).tolist()

    for name in columns:
        if (metric := METRICS.get(name)) is not None:
            values[name] = _mean(_compute(name, metric, candidates, groups))
        if name in ("METEOR", "SPICE"):
            try:
                values[name] = run(name)
            except LegendaError as error:
                if metrics != "auto":
                    raise
                notices.append(f"no {name}: {error}")
                values[name] = None, [None] * len(candidates)
    if notices:
        warnings.warn("; ".join(notices), stacklevel=2)

    return Scores(
        {name: values[name][0] for name in columns},
        {image: {name: values[name][1][n] for name in columns} for n, image in enumerate(predictions)},
        documents,
        source,
        tuple(notices),
        counts,
    )


def _columns(metrics: str | Sequence[str]) -> list[str]:
    """Return the metrics to compute, in the order of METRICS."""
    if metrics in ("auto", "fast"):
        return [*WITHOUT_JAVA, *(("METEOR", "SPICE") if metrics == "auto" else ()), *METRICS.registered]
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    if not names:
        raise ConfigError('metrics names no metric; give names or "auto"')
    for name in names:
        if name not in (*METRICS, "BLEU"):
            hint = did_you_mean(str(name), [*METRICS, "BLEU", "fast", "auto"])
            raise ConfigError(f"there is no metric {name!r}; {hint}{PLUGIN_HINT}")
    return [name for name in METRICS if name in names or (name in BLEU and "BLEU" in names)]


def _compute(name: str, metric: Metric, candidates: Sequence[str], groups: Sequence[Sequence[str]]) -> Sequence[float]:
    """Return what a registered metric returns, as floats; raise ConfigError unless that is a number an image."""
    values = [float(value) for value in metric(candidates, groups)]
    if len(values) != len(candidates) or not all(map(isfinite, values)):
        raise ConfigError(f"the metric {name!r} must return a finite number for each of {len(candidates)} images")
    return values


def _mean(per_image: Sequence[float]) -> _Values:
    return fmean(per_image), per_image


def resolve_document_frequencies(
    df: DocumentFrequencies | References | None, groups: Sequence[Sequence[Sequence[str]]], *, tokenized: bool = False
) -> tuple[DocumentFrequencies, str]:
    """Return document frequencies and their source; with None they are counted in `groups` of tokens."""
    if df is None:
        return DocumentFrequencies.from_references(groups), SCORED
    if isinstance(df, DocumentFrequencies):
        return df, "document frequencies passed as df"
    _check_references(df)
    documents = (as_tokens(captions, tokenized=tokenized) for captions in df.values())
    return DocumentFrequencies.from_references(documents), "references passed as df"


def as_tokens(captions: Iterable[str], *, tokenized: bool = False) -> list[list[str]]:
    """Return the tokens of captions, given as raw text or as tokens joined by spaces."""
    return [caption.split() if tokenized else _tokenize(caption).split() for caption in captions]


def _tokenize(caption: str) -> str:
    tokens = ptb_tokenize(caption if caption.isprintable() else caption.translate(_SPACES))
    if len(tokens) > MAX_WORDS:
        raise DataError(f"the caption {caption[:60]!r}... has {len(tokens):,} words; at most {MAX_WORDS:,} are scored")
    return " ".join(tokens)


def _check(predictions: Mapping[Any, str], references: References) -> None:
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
    _check_references(references)


def _check_references(references: References) -> None:
    for image, captions in references.items():
        if isinstance(captions, str) or not isinstance(captions, Sequence):
            raise DataError(f"the references of image {image!r} are {type(captions).__name__}; give a list of captions")
        if not captions:
            raise DataError(
                f"image {image!r} has an empty list of references; give at least one or leave the image out"
            )
        if wrong := [caption for caption in captions if not isinstance(caption, str)]:
            raise DataError(f"a reference of image {image!r} is {type(wrong[0]).__name__}; give captions as text")


def _name_some(images: list[Any]) -> str:
    names = ", ".join(repr(image) for image in images[:_MAX_NAMED])
    more = len(images) - _MAX_NAMED
    return f"{len(images)} image(s): {names}" + (f" and {more} more" if more > 0 else "")
