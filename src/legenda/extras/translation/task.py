"""Translation as a task: the objective of a translator, translations, their scores, and what a report shows."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from legenda.decoding import beam_search
from legenda.extras.translation.data import ParallelDataModule, ParallelDataset
from legenda.extras.translation.metric import score_sentences, score_translations
from legenda.extras.translation.model import Translator
from legenda.extras.translation.subwords import (
    load_subwords,
)
from legenda.metrics.results import EvaluationResult, Example, MetricWithCI, Prediction, mean_with_ci
from legenda.models.base import inference
from legenda.run_folder import SUBWORDS, VOCABULARY
from legenda.runtime.settings import GenerationConfig, Overrides
from legenda.tasks.base import Batch, Objective, PreparedBatch, set_vocabulary
from legenda.tasks.objectives import PADDING, cross_entropy
from legenda.tasks.reporting import ReportedTask
from legenda.text import Vocabulary

__all__ = ["translate"]


@dataclass(frozen=True, eq=False)
class EncodedLines:
    """Lines as token ids, concatenated: line i is token_ids[offsets[i] : offsets[i + 1]]."""

    token_ids: np.ndarray
    offsets: np.ndarray

    @staticmethod
    def of(lines: Iterable[list[int]]) -> EncodedLines:
        """Return lines in compact arrays."""
        token_ids, offsets = array("i"), array("q", [0])
        for line in lines:
            token_ids.extend(line)
            offsets.append(len(token_ids))
        return EncodedLines(np.asarray(token_ids, np.int32), np.asarray(offsets, np.int64))

    def padded(self, indices: np.ndarray) -> Int[torch.Tensor, "B N"]:
        """Return some lines, padded with -1 to the longest of them."""
        spans = zip(self.offsets[indices], self.offsets[indices + 1], strict=True)
        lines = [torch.from_numpy(self.token_ids[start:end]).long() for start, end in spans]
        return pad_sequence(lines, batch_first=True, padding_value=PADDING)


def translate(
    model: Translator,
    sentences: Sequence[str],
    *,
    batch_size: int = 64,
    generation_config: GenerationConfig | None = None,
    **overrides: object,
) -> list[str]:
    """Return the best translation of each sentence as running text; an empty line stays empty.

    Sentences of similar length share a batch. The model runs in evaluation mode. generation_config: by default the
    model's with a beam size of 4; overrides: fields of it, such as max_length=64.
    """
    config = (generation_config or model.generation_config.replace(beam_size=4)).replace(**overrides)
    device = next(model.parameters()).device
    encoded = [model.encode_text(sentence) for sentence in sentences]
    order = sorted((i for i, ids in enumerate(encoded) if len(ids) > 1), key=lambda i: len(encoded[i]))
    translations = [""] * len(encoded)
    with inference(model) as translator:
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            source = pad_sequence([torch.tensor(encoded[i]) for i in batch], True, PADDING).to(device)
            output = beam_search(
                translator, translator.encode(source), num_return_sequences=1, generation_config=config
            )
            for i, tokens in zip(batch, output.tokens[:, 0].tolist(), strict=True):
                translations[i] = model.decode_text(tokens)
    return translations


_LENGTH_BUCKETS, _MIN_BUCKET_SIZE = 4, 16
"""Buckets of similar length that a batch is split into, and the least number of pairs in each."""


class TranslationObjective(Objective[ParallelDataset, Translator]):
    """Cross-entropy of the first reference of each sentence, all indices at once (teacher forcing)."""

    @cached_property
    def pairs(self) -> tuple[EncodedLines, EncodedLines]:
        """Source and target sentences as token ids."""
        encode, firsts = self.model.encode_text, (references[0] for references in self.split.references)
        return EncodedLines.of(map(encode, self.split.sentences)), EncodedLines.of(map(encode, firsts))

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
        return PreparedBatch((inputs,), (float((target != PADDING).sum()),))

    def forward(self, batch: Batch, *prepared: Tensor | None) -> tuple[Float[Tensor, ""]]:
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
            smoothing = config.label_smoothing, config.label_smoothing_target
            total = total + cross_entropy(logits, tokens, *smoothing, reduction="sum")
        return (total,)


class Translation(ReportedTask[ParallelDataset, Translator, str]):
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
    examples = ParallelDataset
    data: ParallelDataModule  # pyrefly: ignore[bad-override-mutable-attribute]  # set once

    def create(self, model: str, options: Mapping[str, object], init_from: Path | None = None) -> Translator:
        """Return a translator that never generates the unknown token, nor more than the longest training sentence."""
        data = self.data
        vocabulary = data.vocabulary if init_from is None else Vocabulary.load(init_from / VOCABULARY)
        translator = self.build_model(model, {**options, "vocab_size": len(vocabulary)})
        assert isinstance(translator, Translator)
        set_vocabulary(translator, vocabulary)
        translator.subwords = data.subwords if init_from is None else load_subwords(init_from / SUBWORDS)
        self.set_max_length(translator)
        return translator

    def set_max_length(self, model: Translator) -> None:
        """Set the longest translation to one token more than the longest training sentence."""
        model.generation_config = model.generation_config.replace(max_length=self.data.max_length + 1)

    def metric_names(self) -> Collection[str]:
        """Return BLEU, chrF and exact; raise LegendaError where sacrebleu is not installed."""
        subset = self.data.validation.at([0])
        return self.score({subset.ids[0]: subset.references[0][0]}, subset).keys()

    @staticmethod
    def predict(model: Translator, split: ParallelDataset, indices: np.ndarray, search: Overrides) -> dict[str, str]:
        """Return the best translations."""
        subset, config = split.at(indices.tolist()), model.generation_config.replace(**search)
        return dict(zip(subset.ids, translate(model, subset.sentences, generation_config=config), strict=True))

    @staticmethod
    def score(predictions: Mapping[str, str], split: ParallelDataset) -> dict[str, float | None]:
        """Return scores from 0 to 100."""
        return {**score_translations(predictions, split.printed).corpus}

    @staticmethod
    def describe_example(split: ParallelDataset, index: int) -> Example:
        """Return the sentence and its references."""
        subset = split.at([index])
        (references,) = subset.printed.values()
        return Example((("source", subset.sentences[0]), *(("reference", text) for text in references)))

    @staticmethod
    def score_with_intervals(predictions: Mapping[str, str], split: ParallelDataset) -> EvaluationResult:
        """Return the corpus scores; the score of one translation is its chrF."""
        references = split.printed
        corpus = score_translations(predictions, references, resamples=1000)
        scores = {}
        for name, margin in corpus.margins.items():
            value = corpus.corpus[name]
            scores[name] = MetricWithCI(value, (value - margin, value + margin), len(split), False)
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
        predictions: Mapping[str, str],
        scores: Mapping[str, float],
    ) -> dict[str, Prediction]:
        """Return the translations with their chrF."""
        ids = [split.ids[index] for index in indices]
        return {id_: Prediction(predictions[id_].split(), score=scores[id_]) for id_ in ids}
