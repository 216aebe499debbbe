"""Captions for a split, and their scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from legenda.datasets.captions import CaptionDataset
from legenda.decoding import Decoded, Ensemble, beam_search
from legenda.errors import UserError
from legenda.metrics import WITHOUT_JAVA, evaluate
from legenda.models import Captioner
from legenda.regions import Regions
from legenda.text import Vocabulary


def describe_images(
    model: Captioner | Ensemble,
    split: CaptionDataset,
    *,
    beam_size: int,
    vocabulary: Vocabulary | None = None,
    batch_size: int = 50,
    need_attention: bool = False,
    positions: np.ndarray | None = None,
    heard: Callable[[np.ndarray, Regions, Decoded], None] | None = None,
) -> dict[str, str]:
    """The best caption of every image of a split, by identity.

    vocabulary: the words of an ensemble; a model has its own. positions: the images to be described, where it is not
    all of them.
    heard: called after each batch with the positions in the split, their regions and what was decoded.
    The model's mode is put back afterwards.
    """
    words = vocabulary or (model.vocabulary if isinstance(model, Captioner) else None)
    if words is None:
        raise UserError("this model has no vocabulary, so it cannot write words; set model.vocabulary first")
    device = next(model.parameters()).device
    captions: dict[str, str] = {}
    mode = model.training
    model.eval()
    with torch.no_grad():
        chosen = np.arange(len(split)) if positions is None else positions
        for part in np.array_split(chosen, -(-len(chosen) // batch_size)) if len(chosen) else ():
            regions = split.read(part).to(device)
            try:
                memory = model.encode(regions)
            except UserError as error:
                raise UserError(
                    f"{split.source} does not fit {getattr(model, 'name', 'the ensemble')}: {error}"
                ) from error
            found = beam_search(model, memory, beam_size=beam_size, results=1, need_attention=need_attention)
            for position, row in zip(part, found.tokens[:, 0].tolist(), strict=True):
                captions[split.ids[position]] = words.decode(row)
            if heard is not None:
                heard(part, regions, found)
    model.train(mode)
    return captions


def score_captions(captions: dict[str, str], split: CaptionDataset) -> dict[str, float | None]:
    """The corpus scores that need no Java, of captions against a split's references, and what the split measures."""
    references = dict(zip(split.ids, split.references, strict=True))
    scores = evaluate(captions, references, metrics=WITHOUT_JAVA).corpus
    return scores | (split.score(captions) if split.score is not None else {})
