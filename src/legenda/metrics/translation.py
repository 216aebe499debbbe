"""Scores of translations: BLEU and chrF by sacrebleu, whose signatures say how, and the share that is exactly right.

BLEU here is not that of captions: it counts tokens of running text with its case and punctuation, 0..100 (Post, 2018,
"A Call for Clarity in Reporting BLEU Scores").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from legenda.errors import UserError

TRANSLATION_METRICS = ("BLEU", "chrF", "exact")
"""Every score that `score_translations` gives."""


@dataclass(frozen=True)
class TranslationScores:
    """Scores of a set of translations, all in 0..100.

    corpus: "BLEU", "chrF" (chrF2) and "exact", the share of sentences that are a reference to the letter.
    signatures: how sacrebleu came to its two, to be told beside the numbers.
    margins: half the width of their 95 % bootstrap intervals; empty unless asked for.
    """

    corpus: dict[str, float]
    signatures: dict[str, str]
    margins: dict[str, float] = field(default_factory=dict)


def score_translations(
    translations: Mapping[str, str], references: Mapping[str, Sequence[str]], *, resamples: int = 0
) -> TranslationScores:
    """The scores of detokenized translations, of which all or some of the references are for.

    resamples: draws of the bootstrap (Koehn, 2004) that tell the margins, of sacrebleu's fixed seed; 0 tells none.
    Raises UserError where sacrebleu is not installed, nothing is translated, or a translation has no reference.
    """
    said, streams = _aligned(translations, references)
    corpus, signatures = {}, {}
    for name, metric in _metrics().items():
        corpus[name] = float(metric.corpus_score(said, streams).score)
        signatures[name] = str(metric.get_signature())
    margins = (
        {name: float(found[0].ci) for name, found in _drawn([said], streams, resamples).items()} if resamples else {}
    )
    exact = [text in references[identity] for identity, text in translations.items()]
    return TranslationScores({**corpus, "exact": 100 * fmean(exact)}, signatures, margins)


def score_sentences(translations: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The chrF of each translation alone, 0..100, which tells one from another but does not add up to the corpus'.

    Raises UserError as `score_translations` does.
    """
    _aligned(translations, references)
    metric = _metrics()["chrF"]
    return {name: float(metric.sentence_score(text, references[name]).score) for name, text in translations.items()}


def compare_translations(
    first: Mapping[str, str],
    second: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    resamples: int = 1000,
) -> dict[str, float]:
    """For each metric p: how often chance alone makes two sets differ as much, by sacrebleu's paired bootstrap.

    Raises UserError where the two do not translate the same sentences.
    """
    if first.keys() != second.keys():
        raise UserError("the two sets translate different sentences; compare translations of the same split")
    one, streams = _aligned(first, references)
    other = [second[identity] for identity in first]
    return {name: float(found[1].p_value) for name, found in _drawn([one, other], streams, resamples).items()}


def _drawn(said: list[list[str]], streams: list[list[str | None]], resamples: int) -> dict[str, list[Any]]:
    """For each metric what sacrebleu's bootstrap finds of sets of translations, the first one the baseline."""
    test = _sacrebleu().significance.PairedTest(
        [(str(number), lines) for number, lines in enumerate(said)],
        _metrics(),
        streams,
        test_type="bs",
        n_samples=resamples,
    )
    _, results = test()
    return {ours: results[theirs] for ours, theirs in (("BLEU", "BLEU"), ("chrF", "chrF2"))}


def _aligned(
    translations: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> tuple[list[str], list[list[str | None]]]:
    """Translations in their order, and the references as sacrebleu takes them: first ones, second ones, ..."""
    if not translations:
        raise UserError("there are no translations to score; give at least one")
    missing = [identity for identity in translations if not references.get(identity)]
    if missing:
        raise UserError(f"sentence {missing[0]} has no reference; score translations of the split they belong to")
    rows = [references[identity] for identity in translations]
    streams = [[row[place] if place < len(row) else None for row in rows] for place in range(max(map(len, rows)))]
    return list(translations.values()), streams


def _metrics() -> dict[str, Any]:
    metrics = _sacrebleu().metrics
    return {"BLEU": metrics.BLEU(), "chrF": metrics.CHRF()}


def _sacrebleu() -> Any:
    try:
        import sacrebleu.metrics
        import sacrebleu.significance
    except ImportError as error:
        raise UserError(
            'translations are scored by sacrebleu; install it with pip install "legenda[translation]"'
        ) from error
    return sacrebleu
