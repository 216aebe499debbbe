"""Captions of a split by beam search, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby

import numpy as np

from legenda.compute import SearchOptions
from legenda.data.captions import CaptionDataset
from legenda.decoding import Ensemble, GenerationOutput
from legenda.decoding.search import search
from legenda.errors import ConfigError, DataError, LegendaError
from legenda.metrics import evaluate
from legenda.models import Captioner
from legenda.models.base import eval_mode
from legenda.regions import Regions
from legenda.text import Vocabulary


def generate_captions(
    model: Captioner | Ensemble,
    split: CaptionDataset,
    *,
    options: SearchOptions,
    vocabulary: Vocabulary | None = None,
    batch_size: int = 50,
    need_attention: bool = False,
    indices: np.ndarray | None = None,
    callback: Callable[[np.ndarray, Regions, GenerationOutput], None] | None = None,
) -> dict[str, str]:
    """Return the caption of each image of a split by its id: the best of beam search, or a sample.

    options: of the search. vocabulary: that of an ensemble; a model has its own. indices: the images to caption; all by
    default. callback: called after each batch with the indices, their regions and the output of the search. Raise
    DataError where the features do not fit the model.
    """
    vocabulary = model.require_vocabulary() if vocabulary is None and isinstance(model, Captioner) else vocabulary
    if vocabulary is None:
        raise ConfigError("name the vocabulary of the ensemble")
    device = next(model.parameters()).device
    captions: dict[str, str] = {}
    selected = np.arange(len(split)) if indices is None else indices
    with eval_mode(model):
        for batch in np.array_split(selected, -(-len(selected) // batch_size)) if len(selected) else ():
            regions = split.read(batch).to(device)
            try:
                memory = model.encode(regions)
            except LegendaError as error:
                name = getattr(model, "name", "the ensemble")
                raise DataError(f"{split.source} does not fit {name}: {error}") from error
            names = [split.ids[index] for index in batch]
            output = search(model, memory, options, vocabulary, names=names, need_attention=need_attention)
            for name, tokens in zip(names, output.tokens[:, 0].tolist(), strict=True):
                captions[name] = vocabulary.decode(tokens)
            if callback is not None:
                callback(batch, regions, output)
    return captions


def collapse_repeats(captions: Mapping[str, str]) -> dict[str, str]:
    """Return the captions without words that equal the word before them."""
    return {id_: " ".join(word for word, _ in groupby(caption.split())) for id_, caption in captions.items()}


def score_captions(captions: dict[str, str], split: CaptionDataset) -> dict[str, float | None]:
    """Return the corpus scores that need no Java, those of registered metrics, and the split's own scores."""
    references = dict(zip(split.ids, split.references, strict=True))
    scores = evaluate(captions, references, metrics="fast").corpus
    return scores | (split.score(captions) if split.score is not None else {})
