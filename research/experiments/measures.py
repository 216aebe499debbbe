"""The numbers of a claim's runs: scores, steps to a score, and functions of captions, weights and gradients."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from claim import BEAM_SIZE, Claim, ClaimRun, Measure
from jaxtyping import Float
from torch import Tensor

from legenda.attention.distance import DistanceRescale
from legenda.compute import SearchOptions
from legenda.evaluation.results import evaluation_path
from legenda.evaluation.runs import load_captioner_run
from legenda.io import get_field, read_json, write_json
from legenda.metrics.diversity import measure_diversity
from legenda.models.checkpoint import load_any
from legenda.tasks.base import Objective
from legenda.tasks.captioning import Captioning, generate_captions
from legenda.training.history import read_history

HINT = "run research/claims/run.py NAME to write it again"
NUM_IMAGES, NUM_SAMPLES = 100, 5
"""Of `sample_diversity`."""
NUM_BATCHES, BATCH_SIZE = 60, 32
"""Of `gradient_noise`."""


def describe_machine() -> str:
    """Return the processor and the number of cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def collect(claim: Claim, runs: Iterable[ClaimRun], core_hours: float, steps: int | None = None) -> dict[str, Any]:
    """Return the numbers of the runs that are finished and evaluated.

    arms: by key, with the number of parameters, the steps of the training, and the measures of each seed; null where a
    score was not reached, or has no value. core_hours: those that training and evaluation took. steps: those of each
    run where they are not those of the claim.
    """
    arms: dict[str, Any] = {}
    for run in runs:
        if (scores := run.run.scores()) is not None:
            arm = arms.setdefault(run.arm.key, {"steps": run.steps, "parameters": _parameters(run), "seeds": {}})
            values = {key: _value(measure, run, scores) for key, measure in claim.measures.items()}
            arm["seeds"][str(run.seed)] = values
    return {
        "claim": claim.name,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "beam_size": BEAM_SIZE,
        "core_hours": round(core_hours, 3),
        "steps": steps,
        "arms": arms,
    }


def read_results(path: Path) -> dict[str, Any]:
    """Return the numbers of a JSON file; raise DataError for another file."""
    content = read_json(path, HINT)
    for name, kind in (("claim", str), ("arms", dict), ("core_hours", int | float), ("machine", str), ("date", str)):
        get_field(content, name, kind, str(path), HINT)
    for key, arm in content["arms"].items():
        where = f"the model {key} of {path}"
        get_field(arm, "parameters", int, where, HINT)
        get_field(arm, "steps", int, where, HINT)
        for seed in (seeds := get_field(arm, "seeds", dict, where, HINT)):
            for measure in get_field(seeds, seed, dict, where, HINT):
                get_field(seeds[seed], measure, int | float | None, f"seed {seed} of {where}", HINT)
    return content


CORE_HOURS = "core_hours.json"


class CoreHours:
    """The core-hours of a claim, those of earlier calls included, in a file of the folder of its runs.

    The file also holds those of the folder's other claims. Raise DataError for a damaged file.
    """

    def __init__(self, folder: Path, claim: str) -> None:
        self._path, self._claim, self._seconds = folder / CORE_HOURS, claim, _seconds_of_processes()
        self._read()

    def count(self) -> float:
        """Add the time of the processes that have ended since the last call; return the sum."""
        known, seconds = self._read(), _seconds_of_processes()
        known[self._claim] += (seconds - self._seconds) / 3600
        write_json(self._path, known)
        self._seconds = seconds
        return known[self._claim]

    def _read(self) -> dict[str, float]:
        hint = "delete it to count from 0"
        known = read_json(self._path, hint) if self._path.exists() else {}
        new = isinstance(known, dict) and self._claim not in known
        before = 0.0 if new else get_field(known, self._claim, int | float, str(self._path), hint)
        return {**known, self._claim: before}


def _seconds_of_processes() -> float:
    """Return the processor time, in seconds, of all processes that this one started and that ended."""
    return sum(os.times()[2:4])


def _parameters(run: ClaimRun) -> int:
    return load_any(run.folder).parameter_count


def _value(measure: Measure, run: ClaimRun, scores: Mapping[str, float | None]) -> float | None:
    if measure.metric is not None:
        value = METRICS[measure.metric](run)
    elif measure.reaches is not None:
        value = steps_to_reach(read_history(run.folder), measure.name, measure.reaches)
    else:
        where = f"the test scores in {run.folder}"
        value = get_field(scores, measure.name, int | float | None, where, "delete the folder to train it again")
    return None if value is None or not math.isfinite(value) else round(value, 5)


def steps_to_reach(history: Iterable[Mapping[str, Any]], score: str, threshold: float) -> int | None:
    """Return the step from which the validation score stays at the threshold or above; None where it never does."""
    first = None
    for record in history:
        if "validation" in record:
            value = record["validation"].get(score)
            if value is None or value < threshold:
                first = None
            elif first is None:
                first = int(record["step"])
    return first


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


def gradient_noise(run: ClaimRun) -> float | None:
    """Return the variance of the gradient of the second stage, divided by the squared norm of its mean.

    Of the model with which that stage began, over NUM_BATCHES random batches of BATCH_SIZE training images, each with
    samples of its own; the training takes larger batches or smaller ones. None where the stage is not self-critical.
    """
    config = run.recipe.stages[-1]
    if config.objective != "self_critical":
        return None
    model = load_captioner_run(run.folder).load_stage(1).model
    objective = Captioning(run.recipe.data.open(lambda _: None)).objective(model, config)
    model.train()
    torch.manual_seed(run.seed)
    generator = torch.Generator().manual_seed(run.seed)
    gradients = []
    for number in range(NUM_BATCHES):
        indices = np.random.default_rng([run.seed, number]).choice(len(objective.split), BATCH_SIZE, replace=False)
        gradients.append(_gradient(objective, indices, generator))
    return noise_of(torch.stack(gradients))


def noise_of(gradients: Float[Tensor, "batches parameters"]) -> float:
    """Return the sum of the variances of all components, divided by the squared norm of the mean gradient.

    That norm is estimated without bias: the square of the mean of a few noisy gradients is too large by their variance
    divided by their number. Infinite where the noise hides the mean.
    """
    variance = float(gradients.var(dim=0).sum())
    squared_norm = float(gradients.mean(dim=0).square().sum()) - variance / len(gradients)
    return variance / squared_norm if squared_norm > 0 else float("inf")


def _gradient(objective: Objective, indices: np.ndarray, generator: torch.Generator) -> Float[Tensor, " parameters"]:
    """Return the gradient of the loss of a batch as one vector."""
    objective.zero_grad()
    batch = {**objective.read(indices), **objective.sample_targets(indices, generator)}
    prepared = objective.prepare(indices, batch, 1)
    loss = prepared.finish(objective(batch, *prepared.inputs))
    (loss.sums[0] / max(prepared.normalizers[0], 1.0)).backward()
    parts = [p.grad if p.grad is not None else torch.zeros_like(p) for p in objective.model.parameters()]
    return torch.cat([part.flatten() for part in parts])


METRICS: Mapping[str, Callable[[ClaimRun], float | None]] = {
    "mean_length": mean_length,
    "distinct_captions": distinct_captions,
    "sample_diversity": sample_diversity,
    "near_heads": near_heads,
    "gradient_noise": gradient_noise,
}
"""Functions from a run to a number, by name."""
