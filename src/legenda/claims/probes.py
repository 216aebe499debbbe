"""Numbers of a run other than its scores: of its captions, its weights and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean

import numpy as np
import torch

from legenda.attention.distance import DistanceRescale
from legenda.claims.gradient import gradient_noise
from legenda.claims.runs import ClaimRun
from legenda.evaluation.results_file import evaluation_path
from legenda.evaluation.runs import load_captioner_run
from legenda.io import read_json
from legenda.metrics.diversity import measure_diversity
from legenda.models.checkpoint import load_any
from legenda.search_options import SearchOptions
from legenda.tasks.predict import generate_captions

NUM_IMAGES, NUM_SAMPLES = 100, 5


def _captions(run: ClaimRun) -> list[list[str]]:
    """Return the words of the test captions."""
    captions = read_json(evaluation_path(run.folder, "test"), "evaluate the run again")["captions"]
    return [caption.split() for caption in captions.values()]


def mean_length(run: ClaimRun) -> float:
    """Return the words of a test caption on average."""
    return fmean(map(len, _captions(run)))


def distinct_captions(run: ClaimRun) -> float:
    """Return the number of different test captions for each test image."""
    captions = _captions(run)
    return len({tuple(words) for words in captions}) / len(captions)


def sample_diversity(run: ClaimRun) -> float:
    """Return the self-CIDEr of NUM_SAMPLES sampled captions of each of the first NUM_IMAGES test images."""
    model, split = load_captioner_run(run.folder).model, run.recipe.data.split("test")
    indices = np.arange(min(NUM_IMAGES, len(split)))
    samples: dict[str, list[str]] = {}
    for seed in range(NUM_SAMPLES):
        options = SearchOptions(do_sample=True, beam_size=1, seed=seed)
        for image, caption in generate_captions(model, split, options=options, indices=indices).items():
            samples.setdefault(image, []).append(caption)
    return measure_diversity(samples).self_cider


def near_heads(run: ClaimRun) -> float | None:
    """Return the share of the encoder's heads whose factor falls with distance: w < 0 in Eq. 7 of MD-SAN.

    None for a model without distances.
    """
    modules = load_any(run.folder).modules()
    weights = [module.weight.detach() for module in modules if isinstance(module, DistanceRescale)]
    return float((torch.cat(weights) < 0).float().mean()) if weights else None


PROBES: Mapping[str, Callable[[ClaimRun], float | None]] = {
    "mean_length": mean_length,
    "distinct_captions": distinct_captions,
    "sample_diversity": sample_diversity,
    "near_heads": near_heads,
    "gradient_noise": gradient_noise,
}
"""Functions from a run to a number, by name."""
