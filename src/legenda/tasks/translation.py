"""Machine translation as a task (NG-SAN, Table 8)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from legenda.data.translation import ParallelDataModule, ParallelDataset
from legenda.metrics.translation import TRANSLATION_METRICS, score_sentences, score_translations
from legenda.models.translator import Translator
from legenda.run_folder import SUBWORDS, VOCABULARY
from legenda.tasks.base import Batch, Loss, Objective, PreparedBatch, set_vocabulary
from legenda.tasks.objectives import PADDING, cross_entropy
from legenda.tasks.reporting import EvaluationResult, Example, MetricWithCI, Prediction, ReportedTask, mean_with_ci
from legenda.tasks.translate import EncodedLines, translate
from legenda.text import Vocabulary
from legenda.text.subwords import load_subwords

_LENGTH_BUCKETS, _MIN_BUCKET_SIZE = 4, 16
"""Buckets of similar length that a batch is split into, and the least number of pairs in each."""


class TranslationObjective(Objective):
    """Cross-entropy of the first reference of each sentence, all indices at once (teacher forcing)."""

    model: Translator

    @cached_property
    def pairs(self) -> tuple[EncodedLines, EncodedLines]:
        """Source and target sentences as token ids."""
        firsts = (texts[0] for texts in self.split.references)
        return EncodedLines.of(map(self.model.encode_text, self.split.sentences)), EncodedLines.of(
            map(self.model.encode_text, firsts)
        )

    def read(self, indices: np.ndarray) -> Batch:
        """Return sources `(B, N)` and targets `(B, T)` with end tokens, padded with -1."""
        source, target = self.pairs
        return {"source": source.padded(indices), "target": target.padded(indices)}

    @torch.no_grad()
    def prepare(self, indices: np.ndarray, batch: Batch, epoch: int) -> PreparedBatch:  # noqa: ARG002
        """Return the decoder's input tokens: the begin token and all targets but the last."""
        config, target = self.model.generation_config, batch["target"]
        inputs = target.roll(1, dims=1).masked_fill(target == PADDING, config.eos_token_id)
        inputs[:, 0] = config.bos_token_id
        return PreparedBatch((inputs,), (float((target != PADDING).sum()),), lambda total: Loss((total,)))

    def forward(self, batch: Batch, *prepared: Tensor | None) -> Float[Tensor, ""]:
        """Return the sum over all tokens.

        The pairs pass through the model in buckets of similar length, which saves padding.
        """
        (inputs,) = prepared
        assert inputs is not None
        source, target, config = batch["source"], batch["target"], self.config
        lengths = torch.stack([(source != PADDING).sum(dim=1), (target != PADDING).sum(dim=1)])
        buckets = lengths.sum(dim=0).argsort().chunk(max(1, min(_LENGTH_BUCKETS, len(source) // _MIN_BUCKET_SIZE)))
        longest = torch.stack([lengths[:, bucket].amax(dim=1) for bucket in buckets]).tolist()
        total = torch.zeros((), device=source.device)
        for bucket, (N, T) in zip(buckets, longest, strict=True):
            logits = self.model(source[bucket, :N], inputs[bucket, :T].unsqueeze(1))
            tokens = target[bucket, :T].unsqueeze(1)
            total = total + cross_entropy(
                logits, tokens, config.label_smoothing, config.label_smoothing_target, reduction="sum"
            )
        return total


class Translation(ReportedTask):
    """Translation of sentences."""

    name = "translation"
    noun = "sentences"
    card_description = "Each card shows a sentence, its reference translations, and each model's translation."
    metric_descriptions: ClassVar[Mapping[str, str]] = {
        "BLEU": "overlap with the references in n-grams of one to four tokens, 0 to 100",
        "chrF": "overlap with the references in n-grams of one to six characters, 0 to 100",
        "exact": "fraction of translations that equal a reference exactly",
    }
    score_name = "chrF"
    objective_class = TranslationObjective
    data: ParallelDataModule

    def create(self, model: str, options: Mapping[str, Any], init_from: Path | None = None) -> Translator:
        """Return a translator that never generates the unknown token, nor more than the longest training sentence."""
        data = self.data
        vocabulary = data.vocabulary if init_from is None else Vocabulary.load(init_from / VOCABULARY)
        translator: Translator = self.build_model(model, {**options, "vocab_size": len(vocabulary)})
        set_vocabulary(translator, vocabulary)
        translator.subwords = data.subwords if init_from is None else load_subwords(init_from / SUBWORDS)
        translator.generation_config = translator.generation_config.replace(max_length=data.max_length + 1)
        return translator

    def metric_names(self) -> Collection[str]:
        """Return BLEU, chrF and exact; raise LegendaError where sacrebleu is not installed."""
        one = self.data.validation.at([0])
        return self.score({one.ids[0]: one.references[0][0]}, one).keys()

    @staticmethod
    def predict(model: Translator, split: ParallelDataset, indices: np.ndarray, *, beam_size: int) -> dict[str, str]:
        """Return the best translations."""
        subset = split.at(indices.tolist())
        return dict(zip(subset.ids, translate(model, subset.sentences, beam_size=beam_size), strict=True))

    @staticmethod
    def score(predictions: Mapping[str, Any], split: ParallelDataset) -> dict[str, float | None]:
        """Return scores from 0 to 100."""
        scores = score_translations(dict(predictions), split.printed).corpus
        return {name: scores[name] for name in TRANSLATION_METRICS}

    @staticmethod
    def describe_example(split: ParallelDataset, index: int) -> Example:
        """Return the sentence and its references."""
        one = split.at([index])
        (references,) = one.printed.values()
        return Example((("source", one.sentences[0]), *(("reference", text) for text in references)))

    @staticmethod
    def score_with_intervals(predictions: Mapping[str, Any], split: ParallelDataset) -> EvaluationResult:
        """Return the corpus scores; the score of one translation is its chrF."""
        references = split.printed
        corpus = score_translations(predictions, references, resamples=1000)
        scores = {
            name: MetricWithCI(
                corpus.corpus[name], (corpus.corpus[name] - margin, corpus.corpus[name] + margin), len(split), False
            )
            for name, margin in corpus.margins.items()
        }
        exact = {name: float(text in references[name]) for name, text in predictions.items()}
        notes = [f"sacrebleu's signature of {name}: {signature}." for name, signature in corpus.signatures.items()]
        return EvaluationResult(
            {**scores, "exact": mean_with_ci(exact)}, score_sentences(predictions, references), notes=notes
        )

    @staticmethod
    def describe_predictions(
        model: Translator,  # noqa: ARG004
        split: ParallelDataset,
        indices: np.ndarray,
        predictions: Mapping[str, Any],
        scores: Mapping[str, float],
    ) -> dict[str, Prediction]:
        """Return the translations with their chrF."""
        ids = [split.ids[index] for index in indices]
        return {id_: Prediction(predictions[id_].split(), score=scores[id_]) for id_ in ids}
