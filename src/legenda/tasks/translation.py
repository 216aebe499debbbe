"""Translation as a task: sentences of one language into another (NG-SAN, Table 8)."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from legenda.datasets.translation import ParallelDataModule, ParallelDataset
from legenda.decoding import beam_search
from legenda.errors import UserError
from legenda.io import write_json
from legenda.metrics.translation import (
    TRANSLATION_METRICS,
    TranslationScores,
    score_sentences,
    score_translations,
)
from legenda.models.model import VOCABULARY
from legenda.models.registry import build_model, describe_model, list_models
from legenda.models.translator import SUBWORDS, Translator
from legenda.tasks.base import Batch, Loss, Objective, Prepared
from legenda.tasks.config import ObjectiveConfig
from legenda.tasks.objectives import PADDING, cross_entropy
from legenda.tasks.reporting import EvaluationResult, Example, MetricWithCI, Prediction, ReportedTask, mean_with_ci
from legenda.tasks.rewards import Reward
from legenda.text import Vocabulary
from legenda.text.subwords import load_subwords

_PARTS, _LEAST = 4, 16
"""Into how many parts of similar length a batch falls, and the least number of pairs in each."""


class Translation(ReportedTask):
    """Sentences into sentences."""

    name = "translation"
    noun = "sentences"
    card_description = "Each card has a sentence, what people made of it, and each model's translation."
    metric_descriptions: ClassVar[Mapping[str, str]] = {
        "BLEU": "likeness to the references by runs of one to four tokens, 0 to 100",
        "chrF": "likeness to the references by runs of one to six letters, 0 to 100",
        "exact": "share of translations that are a reference to the letter",
    }
    score_name = "chrF"
    loss_title = "training loss (nats per subword)"

    def __init__(self, data: ParallelDataModule) -> None:
        self.data = data
        self.train, self.validation = data.train, data.validation

    def create(self, model: str, options: Mapping[str, Any], start: Path | None = None) -> Translator:
        """A translator that never says the unknown word, nor more than the longest sentence of its training."""
        data, told = self.data, describe_model(model).task
        if told != self.name:
            known = ", ".join(list_models(task=self.name))
            raise UserError(f"{model} is a model for {told}, not for {self.name}; choose from {known}")
        words = data.vocabulary if start is None else Vocabulary.load(start / VOCABULARY)
        created = build_model(model, {**options, "vocab_size": len(words)})
        assert isinstance(created, Translator)
        created.vocabulary = words
        created.subwords = data.subwords if start is None else load_subwords(start / SUBWORDS)
        unknown = words.unk_token_id
        created.decoding = replace(
            created.decoding,
            begin_id=words.bos_token_id,
            end_id=words.eos_token_id,
            banned_ids=() if unknown is None else (unknown,),
            max_length=data.max_length + 1,
        )
        return created

    def objective(
        self,
        model: Translator,
        training: ObjectiveConfig,
        rewards: Mapping[str, Reward] | None = None,  # noqa: ARG002
    ) -> TranslationObjective:
        """Cross-entropy."""
        return TranslationObjective(model, training, self.data.train)

    def measured(self) -> Collection[str]:
        """BLEU, chrF and exact; UserError where what they need is not installed."""
        one = self.data.validation.at([0])
        return self.score({one.ids[0]: one.references[0][0]}, one).keys()

    @staticmethod
    def predict(model: Translator, split: ParallelDataset, positions: np.ndarray, *, beam_size: int) -> dict[str, str]:
        """The best translations."""
        chosen = split.at(positions.tolist())
        return dict(zip(chosen.ids, translate(model, chosen.sentences, beam_size=beam_size), strict=True))

    @staticmethod
    def score(predictions: Mapping[str, Any], split: ParallelDataset) -> dict[str, float | None]:
        """Scores in 0..100."""
        scores = score_translations(dict(predictions), split.printed).corpus
        return {name: scores[name] for name in TRANSLATION_METRICS}

    @staticmethod
    def describe_example(split: ParallelDataset, position: int) -> Example:
        """The sentence and its references."""
        one = split.at([position])
        (references,) = one.printed.values()
        return Example((("source", one.sentences[0]), *(("reference", text) for text in references)))

    @staticmethod
    def score_with_intervals(predictions: Mapping[str, Any], split: ParallelDataset) -> EvaluationResult:
        """Return the corpus scores; the score of one translation is its chrF."""
        references = split.printed
        found = score_translations(predictions, references, resamples=1000)
        scores = {
            name: MetricWithCI(
                found.corpus[name], (found.corpus[name] - margin, found.corpus[name] + margin), len(split), False
            )
            for name, margin in found.margins.items()
        }
        exact = {name: float(text in references[name]) for name, text in predictions.items()}
        notes = [f"sacrebleu's signature of {name}: {signature}." for name, signature in found.signatures.items()]
        return EvaluationResult(
            {**scores, "exact": mean_with_ci(exact)}, score_sentences(predictions, references), notes=notes
        )

    @staticmethod
    def describe_predictions(
        model: Translator,  # noqa: ARG004
        split: ParallelDataset,
        positions: np.ndarray,
        predictions: Mapping[str, Any],
        scores: Mapping[str, float],
    ) -> dict[str, Prediction]:
        """The translations, each with its own chrF."""
        chosen = [split.ids[position] for position in positions]
        return {name: Prediction(predictions[name].split(), score=scores[name]) for name in chosen}


class TranslationObjective(Objective):
    """Cross-entropy of people's translations, the first of each sentence, all words at once."""

    model: Translator

    def __init__(self, model: Translator, training: ObjectiveConfig, split: ParallelDataset) -> None:
        super().__init__(model)
        self.training_settings = training
        self.split = split

    @cached_property
    def pairs(self) -> tuple[EncodedLines, EncodedLines]:
        """Sentences and their translations in the model's words."""
        firsts = (texts[0] for texts in self.split.references)
        return EncodedLines.of(map(self.model.read, self.split.sentences)), EncodedLines.of(
            map(self.model.read, firsts)
        )

    def read(self, positions: np.ndarray) -> Batch:
        """Sentences `(B, N)` and translations `(B, T)` with their ends, padded with -1."""
        source, target = self.pairs
        return {"source": source.rows(positions), "target": target.rows(positions)}

    @torch.no_grad()
    def prepare(self, positions: np.ndarray, batch: Batch, epoch: int) -> Prepared:  # noqa: ARG002
        """What the decoder reads: the begin id and all words but the last."""
        rule, target = self.model.decoding, batch["target"]
        inputs = target.roll(1, dims=1).masked_fill(target == PADDING, rule.end_id)
        inputs[:, 0] = rule.begin_id
        return Prepared((inputs,), (float((target != PADDING).sum()),), lambda total: Loss((total,)))

    def forward(self, batch: Batch, *prepared: Tensor | None) -> Float[Tensor, ""]:
        """The sum over all words.

        The pairs go through the model in parts of similar length, so that little is spent on padding; the sum is the
        same.
        """
        (inputs,) = prepared
        assert inputs is not None
        source, target, training = batch["source"], batch["target"], self.training_settings
        lengths = torch.stack([(source != PADDING).sum(dim=1), (target != PADDING).sum(dim=1)])
        parts = lengths.sum(dim=0).argsort().chunk(max(1, min(_PARTS, len(source) // _LEAST)))
        longest = torch.stack([lengths[:, part].amax(dim=1) for part in parts]).tolist()
        total = torch.zeros((), device=source.device)
        for part, (N, T) in zip(parts, longest, strict=True):
            logits = self.model(source[part, :N], inputs[part, :T].unsqueeze(1))
            words = target[part, :T].unsqueeze(1)
            total = total + cross_entropy(logits, words, training.label_smoothing, training.smoothing, reduction="sum")
        return total


@dataclass(frozen=True, eq=False)
class EncodedLines:
    """Lines as ids, one after the other: line i owns numbers[ends[i] : ends[i + 1]]."""

    numbers: np.ndarray
    ends: np.ndarray

    @staticmethod
    def of(lines: Iterable[list[int]]) -> EncodedLines:
        """Lines kept in little memory."""
        numbers, ends = array("i"), array("q", [0])
        for line in lines:
            numbers.extend(line)
            ends.append(len(numbers))
        return EncodedLines(np.asarray(numbers, np.int32), np.asarray(ends, np.int64))

    def rows(self, positions: np.ndarray) -> Int[Tensor, "B N"]:
        """Some lines, padded with -1 to the longest of them."""
        spans = zip(self.ends[positions], self.ends[positions + 1], strict=True)
        lines = [torch.from_numpy(self.numbers[first:last]).long() for first, last in spans]
        return pad_sequence(lines, batch_first=True, padding_value=PADDING)


def translate(model: Translator, sentences: Sequence[str], *, beam_size: int = 4, batch_size: int = 64) -> list[str]:
    """The best translation of each sentence by beam search, as running text; an empty line stays empty.

    Sentences of similar length are worked on together. Dropout plays no part in it.
    """
    device = next(model.parameters()).device
    encoded = [model.read(sentence) for sentence in sentences]
    order = sorted((place for place, ids in enumerate(encoded) if len(ids) > 1), key=lambda place: len(encoded[place]))
    translated = [""] * len(encoded)
    mode = model.training
    model.eval()
    with torch.no_grad():
        for first in range(0, len(order), batch_size):
            part = order[first : first + batch_size]
            source = pad_sequence([torch.tensor(encoded[place]) for place in part], True, PADDING).to(device)
            found = beam_search(model, model.encode(source), beam_size=beam_size, results=1)
            for place, row in zip(part, found.tokens[:, 0].tolist(), strict=True):
                translated[place] = model.write(row)
    model.train(mode)
    return translated


def evaluate_translator(
    model: Translator, split: ParallelDataset, path: str | Path, *, beam_size: int = 4, resamples: int = 1000
) -> TranslationScores:
    """Translates a split and writes scores, their margins, sacrebleu's signatures and all translations as JSON."""
    translations = dict(zip(split.ids, translate(model, split.sentences, beam_size=beam_size), strict=True))
    scores = score_translations(translations, split.printed, resamples=resamples)
    about = {"source": split.source, "beam_size": beam_size, "length_penalty": model.decoding.length_penalty}
    write_json(path, {**about, **asdict(scores), "translations": translations})
    return scores
