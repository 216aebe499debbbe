"""Translation of sentences by beam search, and sentences as token ids."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch.nn.utils.rnn import pad_sequence

from legenda.data.translation import ParallelDataset
from legenda.decoding import beam_search
from legenda.io import write_json
from legenda.metrics.translation import TranslationScores, score_translations
from legenda.models.base import eval_mode
from legenda.models.translator import Translator
from legenda.tasks.objectives import PADDING


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
    with eval_mode(model):
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            source = pad_sequence([torch.tensor(encoded[i]) for i in batch], True, PADDING).to(device)
            output = beam_search(model, model.encode(source), beam_size=beam_size, num_return_sequences=1)
            for i, tokens in zip(batch, output.tokens[:, 0].tolist(), strict=True):
                translations[i] = model.decode_text(tokens)
    return translations


def evaluate_translator(
    model: Translator, split: ParallelDataset, path: str | Path, *, beam_size: int = 4, resamples: int = 1000
) -> TranslationScores:
    """Translate a split; write scores, margins, sacrebleu's signatures and all translations as JSON."""
    translations = dict(zip(split.ids, translate(model, split.sentences, beam_size=beam_size), strict=True))
    scores = score_translations(translations, split.printed, resamples=resamples)
    settings = {
        "source": split.source,
        "beam_size": beam_size,
        "length_penalty": model.generation_config.length_penalty,
    }
    write_json(path, {**settings, **asdict(scores), "translations": translations})
    return scores
