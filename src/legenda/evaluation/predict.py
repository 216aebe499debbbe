"""Predictions of a split: captions by one run or several as an ensemble, and those of any task."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from legenda.compute import SearchOptions
from legenda.data.captions import CaptionDataset
from legenda.data.features.base import extractor_name
from legenda.decoding import Ensemble, GenerationOutput
from legenda.errors import ConfigError, DataError
from legenda.evaluation.runs import CaptionerRun, Run, check_extractor, replace_features
from legenda.extractors.base import describe_unfamiliar, find_unfamiliar
from legenda.regions import Regions
from legenda.tasks.base import predict_split
from legenda.tasks.captioning import generate_captions
from legenda.terminal import ProgressBar, no_progress_bar

_LOG = logging.getLogger(__name__)
_MIN_IMAGES, _MAX_SHARE = 20, 0.5

GenerationCallback = Callable[[np.ndarray, Regions, GenerationOutput], None]
"""Receives the positions of a batch in its split, the regions, and the generated output."""


def generate(
    run: CaptionerRun,
    split: CaptionDataset,
    options: SearchOptions,
    members: Sequence[CaptionerRun] = (),
    *,
    positions: np.ndarray | None = None,
    attention_callback: GenerationCallback | None = None,
    progress_bar: ProgressBar = no_progress_bar,
) -> dict[str, str]:
    """Return the best caption of every image of a split, by id; one search for each image.

    options: of the search. members: further runs that caption together with `run`, by the mean of their probabilities.
    positions: the images to caption, by default all. attention_callback: called after each batch with its positions,
    regions and generated output, which then holds the attention. Raise DataError where the features are not those of a
    run's extractor. Warn of images unlike those of the training, and of one caption for most images.
    """
    for member in (run, *members):
        check_extractor(member, split)
        if members and hasattr(member.model, "generate"):
            raise ConfigError(f"{member.folder} is a model of transformers and of no ensemble; evaluate it alone")
    count = len(split) if positions is None else len(positions)
    done = 0
    extractor = extractor_name(run.extractor)
    unfamiliar: list[str] = []
    with progress_bar(f"captioning {split.source}") as update:

        def callback(batch: np.ndarray, regions: Regions, output: GenerationOutput) -> None:
            nonlocal done
            if attention_callback is not None:
                attention_callback(batch, regions, output)
            if regions.boxes is not None:
                names = [split.ids[position] for position in batch]
                unfamiliar.extend(find_unfamiliar(extractor, zip(names, regions.boxes.cpu().numpy(), strict=True)))
            done += len(batch)
            update(done, count)

        captions = generate_captions(
            Ensemble([run.model, *(member.model for member in members)]) if members else run.model,
            split,
            options=options,
            vocabulary=run.model.vocabulary,
            need_attention=attention_callback is not None,
            indices=positions,
            callback=callback,
        )
    for warning in (describe_unfamiliar(unfamiliar), describe_one_caption(captions)):
        if warning is not None:
            _LOG.warning(warning)
    return captions


def describe_one_caption(captions: Mapping[str, str]) -> str | None:
    """Return the sentence that warns of one caption for more than half of at least 20 images, else None."""
    ((caption, count),) = Counter(captions.values()).most_common(1) or [("", 0)]
    if len(captions) < _MIN_IMAGES or count <= _MAX_SHARE * len(captions):
        return None
    return (
        f"{count} of {len(captions)} images have the same caption, {caption!r}: the model does not use its images; "
        "train it longer, or check that the features are those of its training"
    )


CHUNK_SIZE = 200
"""Examples between two updates of the progress bar."""


def reject_options(options: Any, names: Iterable[str], reason: str) -> None:
    """Raise ConfigError where one of the named fields of a dataclass is not its default; `reason` ends the message."""
    defaults = {name: field.default for name, field in type(options).model_fields.items()}
    for name in names:
        if getattr(options, name) != defaults[name]:
            raise ConfigError(f"--{name.replace('_', '-')} {reason}")


def reject_captioner_options(run: Run, options: Any, names: Iterable[str]) -> None:
    """Raise ConfigError where one of the named options, which are for captioners, is set."""
    reject_options(options, names, f"is for captioners, but {run.folder} was trained for {run.task.name}; leave it out")


def load_examples(run: Run, split: str, features: Path | None = None) -> Any:
    """Return a split of the run's data; raise LegendaError where it is empty or of another extractor.

    features: a store of the regions of its images, in place of those of the training.
    """
    examples: Any = replace_features(run.data(), features).split(split)
    check_extractor(run, examples)
    if not len(examples):
        raise DataError(f"{examples.source} has no examples in the split {split!r}; choose another with --split")
    return examples


def predict(run: Run, examples: Any, beam_size: int, *, progress_bar: ProgressBar = no_progress_bar) -> dict[str, Any]:
    """Return the predictions for all examples of a split, by id."""
    predictions: dict[str, Any] = {}
    with progress_bar(f"predicting {examples.source}") as update:
        for indices in np.array_split(np.arange(len(examples)), -(-len(examples) // CHUNK_SIZE)):
            predictions |= predict_split(run.task, run.model, examples, indices, beam_size=beam_size)
            update(len(predictions), len(examples))
    return predictions
