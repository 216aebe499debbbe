"""Captions of a split by one run, or by several as an ensemble."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from legenda.datasets.captions import CaptionDataset
from legenda.decoding import Ensemble, GenerationOutput
from legenda.evaluation.data import check_extractor
from legenda.evaluation.progress import ProgressBar, no_progress_bar
from legenda.evaluation.runs import CaptionerRun
from legenda.regions import Regions
from legenda.tasks.predict import generate_captions

GenerationCallback = Callable[[np.ndarray, Regions, GenerationOutput], None]
"""Receives the positions of a batch in its split, the regions, and the generated output."""


def generate(
    run: CaptionerRun,
    split: CaptionDataset,
    beam_size: int,
    members: Sequence[CaptionerRun] = (),
    *,
    positions: np.ndarray | None = None,
    attention_callback: GenerationCallback | None = None,
    progress_bar: ProgressBar = no_progress_bar,
) -> dict[str, str]:
    """Return the best caption of every image of a split, by id; one beam search for each image.

    members: further runs that caption together with `run`, by the mean of their probabilities. positions: the images
    to caption, by default all. attention_callback: called after each batch with its positions, regions and generated
    output, which then holds the attention. Raise DataError where the features are not those of a run's extractor.
    """
    for member in (run, *members):
        check_extractor(member, split)
    count = len(split) if positions is None else len(positions)
    done = 0
    with progress_bar(f"captioning {split.source}") as update:

        def callback(batch: np.ndarray, regions: Regions, output: GenerationOutput) -> None:
            nonlocal done
            if attention_callback is not None:
                attention_callback(batch, regions, output)
            done += len(batch)
            update(done, count)

        return generate_captions(
            Ensemble([run.model, *(member.model for member in members)]) if members else run.model,
            split,
            beam_size=beam_size,
            vocabulary=run.model.vocabulary,
            need_attention=attention_callback is not None,
            indices=positions,
            callback=callback,
        )
