"""Translation: parallel text and number words, and the objective of a translator."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from legenda.config import Config, NonNegativeInt, PositiveInt
from legenda.data.registry import SplitSizes, choose_split
from legenda.decoding import beam_search
from legenda.errors import DataError
from legenda.extras.translation.metric import score_sentences, score_translations
from legenda.extras.translation.model import Translator
from legenda.io import read_bytes
from legenda.models.base import inference
from legenda.results import EvaluationResult, Example, MetricWithCI, Prediction, mean_with_ci
from legenda.run_folder import SUBWORDS, VOCABULARY
from legenda.tasks.base import Batch, Loss, Objective, PreparedBatch, set_vocabulary
from legenda.tasks.objectives import PADDING, cross_entropy
from legenda.tasks.reporting import ReportedTask
from legenda.text import Vocabulary
from legenda.text.tokenizers import (
    BPETokenizer,
    SentencePieceTokenizer,
    SubwordTokenizer,
    build_subword_vocabulary,
    load_subwords,
)

_HINT = "name text files of the same number of lines, gzipped (.gz) or not"


@dataclass(frozen=True, eq=False)
class ParallelDataset:
    """Sentences of one split, each with its human translations.

    ids: their line numbers in the file from 1, or other unique names. source: what they were read from, for
    messages. tokenized: whether the text is cut into tokens already, with spaces or "@@ " between them.
    """

    ids: tuple[str, ...]
    sentences: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]
    source: str
    tokenized: bool = False

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lines(self) -> list[str]:
        """Return the sentences of both languages, from which subwords and vocabularies are learned."""
        return [*self.sentences, *chain.from_iterable(self.references)]

    @property
    def printed(self) -> dict[str, tuple[str, ...]]:
        """Return the references by identity as running text, which is what translations are compared with."""
        references = dict(zip(self.ids, self.references, strict=True))
        if not self.tokenized:
            return references
        pieces = BPETokenizer()
        return {name: tuple(pieces.detokenize(line.split()) for line in lines) for name, lines in references.items()}

    def at(self, positions: Sequence[int]) -> ParallelDataset:
        """Some of the pairs."""
        columns = {name: getattr(self, name) for name in ("ids", "sentences", "references")}
        return replace(self, **{name: tuple(map(column.__getitem__, positions)) for name, column in columns.items()})


@dataclass(frozen=True, eq=False)
class ParallelDataModule:
    """A translation data set in use: its splits, the pieces of both languages, and the longest sentence in pieces."""

    train: ParallelDataset
    validation: ParallelDataset
    subwords: SubwordTokenizer
    vocabulary: Vocabulary
    max_length: int


class ParallelData(Config):
    """Text files `NAME.LANGUAGE` in one folder, with or without .gz, whose lines belong together by their numbers.

    It is the layout of Multi30k and of WMT's sets.
    """

    kind: Literal["parallel"] = "parallel"
    folder: Path
    source: str = "en"
    """The end of the names of the files that are translated."""
    target: str = "de"
    """The end of the names of their translations."""
    train: str = "train"
    validation: str = "val"
    test: str = "test_2016_flickr"
    pieces: NonNegativeInt = 8000
    """Subwords of both languages together, learned from the training text; 0 learns none: the text is tokenized
    already, and its words are whole or have their "@@ " joints."""
    merges: Path | None = None
    """BPE merges for text that is tokenized already, in place of subwords that are learned."""
    max_length: PositiveInt = 100
    """Subwords of the longest sentence; pairs with a longer one are left out of training, and no translation is
    longer."""

    def open(self, progress: Callable[[str], None]) -> ParallelDataModule:
        """Read the text, without pairs that are too long to train on, and learn the subwords."""
        progress(f"reading {self.folder}")
        train, validation = self.split("train"), self.split("val")
        lines = train.lines
        if self.pieces and self.merges is None:
            progress(f"learning {self.pieces} subwords from {len(lines)} lines")
            subwords = SentencePieceTokenizer.train(lines, self.pieces)
            vocabulary = subwords.vocabulary()
        else:
            subwords = BPETokenizer() if self.merges is None else BPETokenizer.read(self.merges)
            vocabulary = build_subword_vocabulary(subwords, lines)
        pairs = zip(train.sentences, train.references, strict=True)
        fitting = [
            position
            for position, (sentence, references) in enumerate(pairs)
            if all(len(subwords.tokenize(text)) <= self.max_length for text in (sentence, *references))
        ]
        if not fitting:
            raise DataError(f"no pair of {train.source} is within data.max_length={self.max_length} subwords; raise it")
        return ParallelDataModule(train.at(fitting), validation, subwords, vocabulary, self.max_length)

    def split(self, name: str) -> ParallelDataset:
        """Return the pairs of a split: train, val or test."""
        names = {"train": self.train, "val": self.validation, "test": self.test}
        stem = choose_split(names, name, self.folder)
        files = [_file(self.folder, f"{stem}.{language}") for language in (self.source, self.target)]
        return replace(read_parallel(files[0], files[1]), tokenized=self.pieces == 0 or self.merges is not None)


def read_parallel(source: Path, *references: Path) -> ParallelDataset:
    """Sentences of one file with their translations in one or more others, line by line.

    Raises DataError, naming the file and the line, where a line is empty or no UTF-8, or the numbers of lines differ.
    """
    sentences = _lines(source)
    translations = [_lines(path) for path in references]
    for path, lines in zip(references, translations, strict=True):
        if len(lines) != len(sentences):
            raise DataError(f"{source} has {len(sentences)} lines but {path} has {len(lines)}; {_HINT}")
    numbers = tuple(map(str, range(1, len(sentences) + 1)))
    return ParallelDataset(numbers, tuple(sentences), tuple(zip(*translations, strict=True)), str(source))


def _file(folder: Path, name: str) -> Path:
    """Return the file of that name, or its gzipped version where only that exists."""
    plain, zipped = folder / name, folder / f"{name}.gz"
    return zipped if zipped.exists() and not plain.exists() else plain


def _lines(path: Path) -> Sequence[str]:
    """Return the lines of a file, each without the spaces around it."""
    lines = []
    for number, line in enumerate(read_bytes(path, _HINT).removesuffix(b"\n").split(b"\n"), start=1):
        try:
            lines.append(line.decode().strip())
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text in line {number}; correct or convert the file") from error
        if not lines[-1]:
            raise DataError(f"{path} is empty in line {number}; take that line out of all files of the split")
    return lines


LARGEST = 999_999

_DIGITS = ("", "lam", "sor", "mir", "tek", "fel", "gov", "nai", "pru", "zin")
_UNITS = ("hun", "den", "")
_THOUSAND, _NOTHING = "tus", "nol"

_ONES = ("", "osk", "ebra", "ushe", "alm", "drelo", "ipsi", "ontu", "yarn", "ewi")
_TENS = ("", "oskri", "ebri", "ushti", "almri", "drel", "ipri", "onri", "yarri", "ewri")
_RANKS = ("", "ung", "wem")
_EMPTY = "vaal"

_POOLS = {"train": (200_000, LARGEST + 1), "val": (100_000, 200_000), "test": (0, 100_000)}
"""Which part of the shuffled numbers each split is taken from."""


class NumberWordsData(SplitSizes):
    """Numbers in words of two invented languages: a small translation task that depends on the order of words.

    Tavil counts in thousands and starts with the largest part: every digit that is not 0 is a word, followed by a word
    for its unit. Orrish counts in hundreds and starts with the smallest part; within a part the ones come before the
    tens, which are words of their own, and every part but the smallest begins with its rank. 305,021 is "mir hun fel
    tus sor den lam" in Tavil, that is "3 hundred 5 thousand 2 ten 1", and "osk ebri ung drel wem ushti" in Orrish: "1,
    20, rank one, 50, rank two, 30".

    The same words in another order are another number, so that a translator without positions must fail.

    Fields: how many numbers of each split, and the seed that shuffles them.
    """

    kind: Literal["number_words"] = "number_words"
    train: PositiveInt = 20_000
    validation: PositiveInt = 300
    test: PositiveInt = 1_000

    def open(self, progress: Callable[[str], None]) -> ParallelDataModule:
        """Spell the numbers; every word is a piece."""
        progress(f"spelling {self.train} numbers for training and {self.validation} for validation")
        train, validation = self.split("train"), self.split("val")
        words = BPETokenizer()
        return ParallelDataModule(train, validation, words, build_subword_vocabulary(words, train.lines), max_length=16)

    def split(self, name: str) -> ParallelDataset:
        """Return the numbers of a split, which are their ids; no two splits of a seed share one."""
        first, last = choose_split(_POOLS, name, "number words")
        numbers = _shuffled(self.seed)[first : first + self.size(name, "number words", last - first)].tolist()
        return ParallelDataset(
            tuple(map(str, numbers)),
            tuple(map(tavil, numbers)),
            tuple((orrish(number),) for number in numbers),
            "number words",
            tokenized=True,
        )


def tavil(number: int) -> str:
    """Return a number of 0 to LARGEST in Tavil."""
    thousands, rest = divmod(number, 1000)
    words = [*_spell(thousands), _THOUSAND] if thousands else []
    return " ".join([*words, *_spell(rest)]) or _NOTHING


def orrish(number: int) -> str:
    """Return a number of 0 to LARGEST in Orrish."""
    words: list[str] = []
    for rank in _RANKS:
        number, part = divmod(number, 100)
        tens, ones = divmod(part, 10)
        if part:
            words += [rank, _ONES[ones], _TENS[tens]]
    return " ".join(filter(None, words)) or _EMPTY


def _spell(part: int) -> list[str]:
    """Return the digits of 0 to 999 with their units, without zeros."""
    digits = part // 100, part // 10 % 10, part % 10
    pairs = ((_DIGITS[digit], unit) for digit, unit in zip(digits, _UNITS, strict=True) if digit)
    return [word for pair in pairs for word in pair if word]


@functools.lru_cache(maxsize=2)
def _shuffled(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(LARGEST + 1)


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


def translate(model: Translator, sentences: Sequence[str], *, beam_size: int = 4, batch_size: int = 64) -> list[str]:
    """Return the best translation of each sentence as running text; an empty line stays empty.

    Sentences of similar length share a batch. The model runs in evaluation mode.
    """
    device = next(model.parameters()).device
    encoded = [model.encode_text(sentence) for sentence in sentences]
    order = sorted((i for i, ids in enumerate(encoded) if len(ids) > 1), key=lambda i: len(encoded[i]))
    translations = [""] * len(encoded)
    with inference(model) as translator:
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            source = pad_sequence([torch.tensor(encoded[i]) for i in batch], True, PADDING).to(device)
            output = beam_search(translator, translator.encode(source), beam_size=beam_size, num_return_sequences=1)
            for i, tokens in zip(batch, output.tokens[:, 0].tolist(), strict=True):
                translations[i] = model.decode_text(tokens)
    return translations


_LENGTH_BUCKETS, _MIN_BUCKET_SIZE = 4, 16
"""Buckets of similar length that a batch is split into, and the least number of pairs in each."""


class TranslationObjective(Objective):
    """Cross-entropy of the first reference of each sentence, all indices at once (teacher forcing)."""

    model: Translator

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
            smoothing = config.label_smoothing, config.label_smoothing_target
            total = total + cross_entropy(logits, tokens, *smoothing, reduction="sum")
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
    examples = ParallelDataset
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
        subset = self.data.validation.at([0])
        return self.score({subset.ids[0]: subset.references[0][0]}, subset).keys()

    @staticmethod
    def predict(model: Translator, split: ParallelDataset, indices: np.ndarray, *, beam_size: int) -> dict[str, str]:
        """Return the best translations."""
        subset = split.at(indices.tolist())
        return dict(zip(subset.ids, translate(model, subset.sentences, beam_size=beam_size), strict=True))

    @staticmethod
    def score(predictions: Mapping[str, Any], split: ParallelDataset) -> dict[str, float | None]:
        """Return scores from 0 to 100."""
        return {**score_translations(predictions, split.printed).corpus}

    @staticmethod
    def describe_example(split: ParallelDataset, index: int) -> Example:
        """Return the sentence and its references."""
        subset = split.at([index])
        (references,) = subset.printed.values()
        return Example((("source", subset.sentences[0]), *(("reference", text) for text in references)))

    @staticmethod
    def score_with_intervals(predictions: Mapping[str, Any], split: ParallelDataset) -> EvaluationResult:
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
        predictions: Mapping[str, Any],
        scores: Mapping[str, float],
    ) -> dict[str, Prediction]:
        """Return the translations with their chrF."""
        ids = [split.ids[index] for index in indices]
        return {id_: Prediction(predictions[id_].split(), score=scores[id_]) for id_ in ids}
