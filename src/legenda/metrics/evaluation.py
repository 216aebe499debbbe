"""All scores of a set of captions in one call."""

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from legenda.errors import UserError, nearest
from legenda.metrics.bleu import BleuStatistics
from legenda.metrics.cider import cider_scores
from legenda.metrics.document_frequencies import DocumentFrequencies
from legenda.metrics.meteor import Meteor
from legenda.metrics.ngrams import Corpus
from legenda.metrics.rouge import rouge_l
from legenda.metrics.spice import Spice
from legenda.text import ptb_tokenize

BLEU = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")
METRICS = (*BLEU, "ROUGE-L", "CIDEr-D", "CIDEr", "METEOR", "SPICE")
"""Every metric, in the order of the results."""
WITHOUT_JAVA = (*BLEU, "ROUGE-L", "CIDEr-D")
"""What "auto" computes everywhere, and fast."""

_NAMED = 3  # how many ids an error names
_SPACES = {ord(sign): " " for sign in "\n\r\v\f\x1c\x1d\x1e\u2028\u2029"}

References = Mapping[Any, Sequence[str]]
_Values = tuple[float | None, Sequence[float | None]]


@dataclass(frozen=True)
class Scores:
    """The scores of a set of captions; `scores["CIDEr-D"]` is that of the corpus.

    corpus: each metric's score; None, never 0, for one that could not be computed, which `notices` then explain.
    per_image: the same for each image. CIDEr and CIDEr-D are in 0..10, all others in 0..1. The corpus' ROUGE-L, CIDEr,
        CIDEr-D and SPICE are means over images; its BLEU and METEOR come from counts summed over images and are not.
    documents, df: the number of documents from which CIDEr-D and CIDEr took their document frequencies, and what those
        were; None where neither was asked for.
    counts: for each image what "BLEU" and "METEOR" sum.
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
        """What JSON can hold: `corpus`, `documents`, `df`, `notices` and `per_image`, whose ids become strings."""
        return {
            "corpus": self.corpus,
            "documents": self.documents,
            "df": self.df,
            "notices": list(self.notices),
            "per_image": {str(image): scores for image, scores in self.per_image.items()},
        }

    def to_json(self) -> str:
        """`to_dict` as an indented JSON object."""
        return json.dumps(self.to_dict(), indent=2)


SCORED = "the references scored"
"""What document frequencies are counted from where none are given."""


def evaluate(
    predictions: Mapping[Any, str],
    references: References,
    *,
    metrics: str | Sequence[str] = "auto",
    df: DocumentFrequencies | References | None = None,
    tokenized: bool = False,
    spice_jars: str | Path | None = None,
) -> Scores:
    """Scores one caption an image against its references, as pycocoevalcap does.

    Both mappings have the same image ids as keys; an image has one predicted caption, which may be empty, and at least
    one reference. Captions are raw text, which `ptb_tokenize` takes apart, a line break counting as a space; with
    `tokenized` they are tokens joined by spaces.

    metrics: names from METRICS, or "BLEU" for BLEU-1 to BLEU-4. "auto" means these, ROUGE-L and CIDEr-D, METEOR when
        the extra `meteor` and Java are there, and SPICE when its jars are; one of the two that cannot be computed is
        None, and a warning says why. What pycocoevalcap calls "CIDEr" is CIDEr-D here.
    df: where CIDEr-D and CIDEr take their document frequencies from: frequencies counted before, or the references of
        other images, as those of `references` are given. With None it is these references, so there must be many
        images: of one image alone CIDEr-D is 0.
    spice_jars: the folder of SPICE's jars; with None, the environment variable LEGENDA_SPICE_JARS names it.

    Raises UserError for ids without their counterpart, for an image without references, for what is not text, for an
    unknown metric, and for a metric asked for by name whose program is missing.
    """
    columns = _columns(metrics)
    _check(predictions, references)
    read = _as_given if tokenized else _tokenized
    candidates = [read(caption) for caption in predictions.values()]
    groups = [[read(caption) for caption in references[image]] for image in predictions]
    words = [candidate.split() for candidate in candidates]
    word_groups = [[caption.split() for caption in group] for group in groups]

    values: dict[str, _Values] = {}
    counts: dict[str, Sequence[Sequence[float]]] = {}
    documents = source = None
    notices: list[str] = []
    ngrams = {"CIDEr-D", "CIDEr", *BLEU} & set(columns)
    counted = Corpus.from_tokens(words, word_groups) if ngrams else None
    if counted is not None and ngrams & set(BLEU):
        found = BleuStatistics.from_corpus(counted)
        whole, single = found.total().scores()[0].tolist(), found.scores().T.tolist()
        values |= {name: (whole[n], single[n]) for n, name in enumerate(BLEU)}
        counts["BLEU"] = found.per_candidate()
    if "ROUGE-L" in columns:
        # The reference program splits at single spaces for ROUGE-L, so that an empty caption is one empty token, and at
        # any white space for the others, so that the U+00A0 of "3 1/2" makes two.
        values["ROUGE-L"] = _mean(
            [
                rouge_l(candidate.split(" "), [caption.split(" ") for caption in group])
                for candidate, group in zip(candidates, groups, strict=True)
            ]
        )
    if counted is not None and ngrams - set(BLEU):
        frequencies = None  # those of the references, which are counted already
        documents, source = len(words), SCORED
        if df is not None:
            frequencies, source = resolve_document_frequencies(df, word_groups, tokenized=tokenized)
            documents = frequencies.documents
        for name in sorted(ngrams - set(BLEU)):
            values[name] = _mean(cider_scores(counted, frequencies, clipped=name == "CIDEr-D").tolist())

    def meteor() -> _Values:
        with Meteor() as program:
            found = program.score(candidates, groups)
        counts["METEOR"] = found.counts
        return found.corpus, found.per_image

    def spice() -> _Values:
        found = Spice(spice_jars).score(candidates, groups)
        return found.corpus, found.per_image

    programs: dict[str, Callable[[], _Values]] = {"METEOR": meteor, "SPICE": spice}
    for name in columns:
        if name in programs:
            try:
                values[name] = programs[name]()
            except UserError as error:
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
    """The metrics meant, in the order of METRICS."""
    if metrics == "auto":
        return [*WITHOUT_JAVA, "METEOR", "SPICE"]
    asked = [metrics] if isinstance(metrics, str) else list(metrics)
    if not asked:
        raise UserError('metrics names no metric; give names or "auto"')
    for name in asked:
        if name not in (*METRICS, "BLEU"):
            raise UserError(f"there is no metric {name!r}; {nearest(str(name), [*METRICS, 'BLEU', 'auto'])}")
    return [name for name in METRICS if name in asked or (name in BLEU and "BLEU" in asked)]


def _mean(per_image: Sequence[float]) -> _Values:
    return fmean(per_image), per_image


def resolve_document_frequencies(
    df: DocumentFrequencies | References | None, groups: Sequence[Sequence[Sequence[str]]], *, tokenized: bool
) -> tuple[DocumentFrequencies, str]:
    """Document frequencies, and what they were counted from: `groups` of tokens where `df` is None."""
    if df is None:
        return DocumentFrequencies.from_references(groups), SCORED
    if isinstance(df, DocumentFrequencies):
        return df, "frequencies given"
    _check_references(df)
    counted = (as_tokens(captions, tokenized=tokenized) for captions in df.values())
    return DocumentFrequencies.from_references(counted), "references given"


def as_tokens(captions: Iterable[str], *, tokenized: bool) -> list[list[str]]:
    """The words of captions: raw text, or tokens joined by spaces."""
    return [caption.split() if tokenized else _tokenized(caption).split() for caption in captions]


def _tokenized(caption: str) -> str:
    return " ".join(ptb_tokenize(caption if caption.isprintable() else caption.translate(_SPACES)))


def _as_given(caption: str) -> str:
    return caption


def _check(predictions: Mapping[Any, str], references: References) -> None:
    if not predictions:
        raise UserError("There are no predictions to score; give a caption for every image with references")
    if missing := [image for image in references if image not in predictions]:
        raise UserError(
            f"The predictions lack {_some(missing)}, which have references; predict them or leave out their references"
        )
    if extra := [image for image in predictions if image not in references]:
        raise UserError(f"There are no references for {_some(extra)}; add them or leave out these predictions")
    for image, caption in predictions.items():
        if not isinstance(caption, str):
            raise UserError(f"The prediction for image {image!r} is {type(caption).__name__}; give one caption as text")
    _check_references(references)


def _check_references(references: References) -> None:
    for image, captions in references.items():
        if isinstance(captions, str) or not isinstance(captions, Sequence):
            raise UserError(
                f"The references of image {image!r} are {type(captions).__name__}; give a list of captions, even of one"
            )
        if not captions:
            raise UserError(
                f"Image {image!r} has an empty list of references; give at least one or leave the image out"
            )
        if wrong := [caption for caption in captions if not isinstance(caption, str)]:
            raise UserError(f"A reference of image {image!r} is {type(wrong[0]).__name__}; give captions as text")


def _some(images: list[Any]) -> str:
    names = ", ".join(repr(image) for image in images[:_NAMED])
    more = len(images) - _NAMED
    return f"{len(images)} image(s): {names}" + (f" and {more} more" if more > 0 else "")
