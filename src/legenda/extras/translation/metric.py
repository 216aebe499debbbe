"""Metrics of translations: BLEU and chrF by sacrebleu, with their signatures, and exact match.

This BLEU differs from that of captions: its tokens include case and punctuation, and it is in 0..100 (Post, 2018, "A
Call for Clarity in Reporting BLEU Scores").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from legenda.errors import DataError, import_extra

__all__ = ["TranslationScores", "score_translations"]

_HYPHEN = re.compile(r"(\S)-(\S)")
_TRANSLATION_METRICS = ("BLEU", "tokenized BLEU", "chrF", "exact")
"""The metrics that `score_translations` computes."""


@dataclass(frozen=True)
class TranslationScores:
    """Scores of a set of translations, all in 0..100.

    corpus: "BLEU", "tokenized BLEU" (see `tokenized_bleu`), "chrF" (chrF2) and "exact", the percentage of sentences
    equal to a reference.
    signatures: sacrebleu's signatures of BLEU and chrF, to be reported with the scores.
    margins: half the widths of the 95 % bootstrap intervals of BLEU and chrF; empty without resamples.
    """

    corpus: dict[str, float]
    signatures: dict[str, str]
    margins: dict[str, float] = field(default_factory=dict)


def score_translations(
    translations: Mapping[str, str], references: Mapping[str, Sequence[str]], *, resamples: int = 0
) -> TranslationScores:
    """Score detokenized translations; references of other sentences are ignored.

    resamples: draws of the bootstrap (Koehn, 2004) for the margins, with sacrebleu's fixed seed; 0 for none.
    Raise ConfigError where sacrebleu is not installed, and DataError where there is no translation or one has no
    reference.
    """
    hypotheses, streams = _align(translations, references)
    metrics = _metrics()
    corpus = {name: float(metric.corpus_score(hypotheses, streams).score) for name, metric in metrics.items()}
    signatures = {name: str(metric.get_signature()) for name, metric in metrics.items()}
    corpus["tokenized BLEU"] = tokenized_bleu(hypotheses, streams)
    corpus["exact"] = 100 * fmean(text in references[name] for name, text in translations.items())
    margins = _margins(hypotheses, streams, resamples) if resamples else {}
    return TranslationScores({name: corpus[name] for name in _TRANSLATION_METRICS}, signatures, margins)


def tokenized_bleu(translations: Sequence[str], streams: Sequence[Sequence[str | None]]) -> float:
    """Return BLEU in 0..100 of Moses' tokens with compounds split at hyphens, which fairseq reports on WMT14.

    streams: the first references of all sentences, the second ones and so on, as sacrebleu takes them. The tokens are
    those of German; "Auto-Test" becomes Auto ##AT##-##AT## Test (Vaswani et al., 2017; fairseq's
    compound_split_bleu.sh). Raise ConfigError where sacrebleu or sacremoses is not installed.
    """
    moses = import_extra("sacremoses", "translation").MosesTokenizer(lang="de")
    bleu = import_extra("sacrebleu.metrics", "translation").BLEU(tokenize="none", force=True)

    def split(text: str | None) -> str | None:
        if text is None:
            return None
        return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", moses.tokenize(text, escape=False, return_str=True))

    lines = [split(text) for text in translations]
    return float(bleu.corpus_score(lines, [[split(text) for text in stream] for stream in streams]).score)


def score_sentences(translations: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return chrF of each translation, in 0..100; their mean is not the corpus score.

    Raise the errors of `score_translations`.
    """
    _align(translations, references)
    metric = _metrics()["chrF"]
    return {name: float(metric.sentence_score(text, references[name]).score) for name, text in translations.items()}


def _margins(hypotheses: list[str], streams: list[list[str | None]], resamples: int) -> dict[str, float]:
    """Return half the 95 % intervals of BLEU and chrF by sacrebleu's bootstrap."""
    test = import_extra("sacrebleu.significance", "translation").PairedTest(
        [("0", hypotheses)], _metrics(), streams, test_type="bs", n_samples=resamples
    )
    _, results = test()
    return {name: float(results[key][0].ci) for name, key in (("BLEU", "BLEU"), ("chrF", "chrF2"))}


def _align(
    translations: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> tuple[list[str], list[list[str | None]]]:
    """Return the translations, and lists of all first references, all second references and so on."""
    if not translations:
        raise DataError("there are no translations to score; give at least one")
    missing = [name for name in translations if not references.get(name)]
    if missing:
        raise DataError(f"sentence {missing[0]} has no reference; score translations of the split they belong to")
    groups = [references[name] for name in translations]
    most = max(map(len, groups))
    streams = [[group[index] if index < len(group) else None for group in groups] for index in range(most)]
    return list(translations.values()), streams


def _metrics() -> dict[str, Any]:
    metrics = import_extra("sacrebleu.metrics", "translation")
    return {"BLEU": metrics.BLEU(), "chrF": metrics.CHRF()}
