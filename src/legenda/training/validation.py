"""Captions for a split, and their scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from legenda.data.caption_sets import CaptionSet
from legenda.decoding import Decoded, beam_search
from legenda.errors import UserError
from legenda.metrics import WITHOUT_JAVA, evaluate
from legenda.models import Captioner
from legenda.regions import Regions


def describe_images(
    model: Captioner,
    split: CaptionSet,
    *,
    beam_size: int,
    batch_size: int = 50,
    need_attention: bool = False,
    heard: Callable[[np.ndarray, Regions, Decoded], None] | None = None,
) -> dict[str, str]:
    """The best caption of every image of a split, by identity.

    heard: called after each batch with the positions in the split, their regions and what was decoded.
    The model's mode is put back afterwards.
    """
    if model.vocabulary is None:
        raise UserError("this model has no vocabulary, so it cannot write words; set model.vocabulary first")
    device = next(model.parameters()).device
    captions: dict[str, str] = {}
    mode = model.training
    model.eval()
    with torch.no_grad():
        for positions in np.array_split(np.arange(len(split)), -(-len(split) // batch_size)):
            regions = split.read(positions).to(device)
            try:
                memory = model.encode(regions)
            except UserError as error:
                raise UserError(f"{split.source} does not fit {model.name}: {error}") from error
            found = beam_search(model, memory, beam_size=beam_size, results=1, need_attention=need_attention)
            for position, row in zip(positions, found.tokens[:, 0].tolist(), strict=True):
                captions[split.identities[position]] = model.vocabulary.decode(row)
            if heard is not None:
                heard(positions, regions, found)
    model.train(mode)
    return captions


def score_captions(captions: dict[str, str], split: CaptionSet) -> dict[str, float | None]:
    """The corpus scores that need no Java, of captions against a split's references, and what the split measures."""
    references = dict(zip(split.identities, split.references, strict=True))
    scores = evaluate(captions, references, metrics=WITHOUT_JAVA).corpus
    return scores | (split.score(captions) if split.score is not None else {})
