"""All scores of a set of captions in one call."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from legenda.errors import UserError
from legenda.metrics.bleu import bleu
from legenda.metrics.cider import DocumentFrequencies, cider_d
from legenda.metrics.rouge import rouge_l
from legenda.text import ptb_tokenize

_NAMED = 3  # how many ids an error names


@dataclass(frozen=True)
class Scores:
    """The scores of a set of captions; `scores["CIDEr-D"]` is that of the corpus.

    `corpus` and every value of `per_image` hold "BLEU-1" to "BLEU-4" and "ROUGE-L", in 0..1, and "CIDEr-D", in 0..10.
    The corpus' BLEU is not the mean over images; ROUGE-L and CIDEr-D are. `documents` is the number of images whose
    references gave CIDEr-D its document frequencies.
    """

    corpus: dict[str, float]
    per_image: dict[Any, dict[str, float]]
    documents: int

    def __getitem__(self, name: str) -> float:
        return self.corpus[name]

    def to_json(self) -> str:
        """The scores as a JSON object with the keys `corpus`, `per_image` and `documents`; ids become strings."""
        per_image = {str(name): scores for name, scores in self.per_image.items()}
        return json.dumps({"corpus": self.corpus, "documents": self.documents, "per_image": per_image}, indent=2)


def evaluate(
    predictions: Mapping[Any, str], references: Mapping[Any, Sequence[str]], *, tokenized: bool = False
) -> Scores:
    """Scores one caption an image against its references with BLEU-1..4, ROUGE-L and CIDEr-D, as pycocoevalcap does.

    Both mappings have the same image ids as keys; an image has one predicted caption, which may be empty, and at least
    one reference. Captions are raw text, which `ptb_tokenize` takes apart; with `tokenized` they are tokens joined by
    spaces. CIDEr-D takes its document frequencies from these references, so it needs many images: of one image alone it
    is 0.

    Raises UserError for ids without their counterpart, for an image without references and for what is not text.
    """
    _check(predictions, references)
    read = _as_given if tokenized else _tokenized
    candidates = [read(caption) for caption in predictions.values()]
    groups = [[read(caption) for caption in references[image]] for image in predictions]

    # The reference program splits at single spaces for ROUGE-L, so that an empty caption is one empty token, and at any
    # white space for the others, so that the U+00A0 of "3 1/2" makes two.
    rouge = [
        rouge_l(candidate.split(" "), [caption.split(" ") for caption in group])
        for candidate, group in zip(candidates, groups, strict=True)
    ]
    words = [candidate.split() for candidate in candidates]
    word_groups = [[caption.split() for caption in group] for group in groups]
    corpus_bleu, image_bleu = bleu(words, word_groups)
    frequencies = DocumentFrequencies.from_references(word_groups)
    cider = [cider_d(tokens, group, frequencies) for tokens, group in zip(words, word_groups, strict=True)]

    per_image = zip(predictions, map(_named, image_bleu, rouge, cider), strict=True)
    return Scores(_named(corpus_bleu, fmean(rouge), fmean(cider)), dict(per_image), frequencies.documents)


def _tokenized(caption: str) -> str:
    return " ".join(ptb_tokenize(caption))


def _as_given(caption: str) -> str:
    return caption


def _named(bleu_scores: Sequence[float], rouge: float, cider: float) -> dict[str, float]:
    return {f"BLEU-{n}": score for n, score in enumerate(bleu_scores, start=1)} | {"ROUGE-L": rouge, "CIDEr-D": cider}


def _check(predictions: Mapping[Any, str], references: Mapping[Any, Sequence[str]]) -> None:
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
