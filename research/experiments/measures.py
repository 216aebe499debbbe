"""The numbers of an experiment's runs: scores, steps to a score, and functions of captions, weights and gradients."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import coco_boxes
import numpy as np
import torch
from experiment import FIRST_SEED, ConditionRun, Experiment, Metric
from jaxtyping import Float
from torch import Tensor

from legenda.config import Integer, Number, get_field
from legenda.errors import ConfigError
from legenda.evaluation.runs import load_captioner_run
from legenda.features.packed import PackedFeatureStore
from legenda.io import read_json, write_json
from legenda.metrics.diversity import measure_diversity
from legenda.metrics.evaluation import evaluate
from legenda.metrics.spice import JARS_VARIABLE, spice
from legenda.models.checkpoint import load_any
from legenda.run_folder import CONFIG, evaluation_path
from legenda.tasks.base import TASKS, Objective
from legenda.tasks.captioning import Captioning, generate_captions
from legenda.text import ptb_tokenize
from legenda.training.checkpoint import read_history

HINT = "run research/experiments/run.py NAME to write it again"
SECONDS = "seconds.json"
"""The processor time of a run, in its folder."""
KEPT = "functions.json"
"""The numbers of FUNCTIONS, in a run's folder; delete it after a change of them."""
NUM_SPICE = 1000
"""The first test images, which `spice_score` measures."""
NUM_IMAGES, NUM_SAMPLES = 100, 5
"""The images, and the samples of each, of `sample_diversity`."""
NUM_DRAWS = 8
"""The draws of `kept_bytes`."""
NUM_BATCHES, BATCH_SIZE = 60, 32
"""The batches and their size of `gradient_noise`."""


def describe_machine() -> str:
    """Return the processor, the number of cores, and the GPU on which trainings run where there is one."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{key.removeprefix('cpu ')} {fields[key]}" for key in ("cpu family", "model") if key in fields]
    gpu = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    return ", ".join([name, *numbers, f"{os.cpu_count()} cores", *gpu, f"torch {torch.__version__}"])


def collect(
    experiment: Experiment, runs: Iterable[ConditionRun], stored: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the numbers of all conditions, by key: those stored, and those of finished and evaluated runs.

    Each condition has the number of parameters, the steps of the training, `kept_bytes`, the commits of the code, and
    for each seed the metrics, null where a score was not reached or has no value, the seconds of training and
    evaluation, and their machine. With captions of people it has the CIDEr-D of each test image and the
    number of its regions, too, see `image_scores` and `image_things`.
    """
    conditions: dict[str, Any] = {key: {**value, "seeds": dict(value["seeds"])} for key, value in stored.items()}
    for run in runs:
        done = run.run.is_trained() and run.run.scores() is not None and (run.folder / SECONDS).exists()
        if not done or (scores := run.run.scores()) is None:
            continue
        if (condition := conditions.get(run.condition.key)) is None:
            condition = {"steps": run.steps, "parameters": _parameters(run), "kept_bytes": _computed("kept", run)}
            condition |= {"commits": [], "seeds": {}}
            conditions[run.condition.key] = condition
        if str(run.seed) in condition["seeds"]:
            continue
        seconds = read_json(run.folder / SECONDS, HINT)
        commit = seconds.pop("commit", None) or read_json(run.folder / CONFIG)["environment"]["commit"]
        condition["commits"] = sorted({*condition["commits"], commit})
        seconds.setdefault("machine", describe_machine())
        values = {key: _value(metric, run, scores) for key, metric in experiment.metrics.items()}
        condition["seeds"][str(run.seed)] = {**values, "seconds": seconds}
        if run.recipe.data.kind == "karpathy":
            _add_images(condition, image_scores(run))
            if "things" not in condition["images"]:
                condition["images"]["things"] = " ".join(map(str, image_things(run)))
    return conditions


def measured(conditions: Mapping[str, Any], run: ConditionRun) -> Mapping[str, Any]:
    """Return the numbers of a run among those of the conditions; none where it has none."""
    return conditions.get(run.condition.key, {"seeds": {}})["seeds"].get(str(run.seed), {})


def best_validation(run: ConditionRun) -> float:
    """Return the best score on the validation split by which the run chose its weights."""
    monitor = run.recipe.stages[-1].monitor
    return max(record["validation"][monitor] for record in read_history(run.folder) if "validation" in record)


def image_scores(run: ConditionRun) -> np.ndarray:
    """Return the CIDEr-D of each test caption, in the order of the sorted image ids."""
    captions = read_json(evaluation_path(run.folder, "test"), HINT)["captions"]
    split = run.recipe.data.split("test")
    references = dict(zip(split.ids, split.references, strict=True))
    scores = evaluate(captions, {image: references[image] for image in captions}, metrics=["CIDEr-D"]).per_image
    return np.array([scores[image]["CIDEr-D"] for image in sorted(captions)])


def image_things(run: ConditionRun) -> list[int]:
    """Return the number of regions of each test image, in the order of the sorted image ids."""
    store = PackedFeatureStore(run.recipe.data.features)
    sizes = {image: len(store.load(position)[0]) for position, image in enumerate(store.ids)}
    captions = read_json(evaluation_path(run.folder, "test"), HINT)["captions"]
    return [sizes[Path(image).stem] for image in sorted(captions)]


def _add_images(condition: dict[str, Any], scores: np.ndarray) -> None:
    """Add a seed's scores of the images to the mean over seeds, which is written in thousandths, as one line."""
    images = condition.get("images", {"seeds": 0, "thousandths": "0 " * len(scores)})
    mean = np.array(images["thousandths"].split(), float) / 1000
    mean = (mean * images["seeds"] + scores) / (images["seeds"] + 1)
    thousandths = " ".join(f"{value:.2f}" for value in 1000 * mean)
    condition["images"] = {**images, "seeds": images["seeds"] + 1, "thousandths": thousandths}


def read_results(path: Path) -> dict[str, Any]:
    """Return the numbers of a JSON file.

    Raise DataError for another file, and ConfigError for a seed of a pilot among those of a verdict.
    """
    content = read_json(path, HINT)
    for name, kind in (("experiment", str), ("conditions", dict), ("designs", list)):
        get_field(content, name, kind, path, HINT)
    for key, condition in content["conditions"].items():
        where = f"the condition {key} of {path}"
        get_field(condition, "parameters", Integer, where, HINT)
        get_field(condition, "steps", Integer, where, HINT)
        get_field(condition, "kept_bytes", Number, where, HINT)
        get_field(condition, "commits", list, where, HINT)
        for seed in get_field(condition, "seeds", dict, where, HINT):
            if not seed.isdecimal() or int(seed) < FIRST_SEED:
                raise ConfigError(f"{where} has the seed {seed}; those of a verdict begin with {FIRST_SEED}")
    return content


def _parameters(run: ConditionRun) -> int:
    return load_any(run.folder).parameter_count


def _value(metric: Metric, run: ConditionRun, scores: Mapping[str, float | None]) -> float | None:
    if metric.function is not None:
        value = _computed(metric.function, run)
    elif metric.reaches is not None:
        value = steps_to_reach(read_history(run.folder), metric.name, metric.reaches)
    else:
        where = f"the test scores in {run.folder}"
        value = get_field(scores, metric.name, float | None, where, "delete the folder to train it again")
    return None if value is None or not math.isfinite(value) else round(value, 5)


def _computed(function: str, run: ConditionRun) -> float | None:
    """Return the number of a function, kept in the run's folder, since experiments collect all runs after each seed."""
    path = run.folder / KEPT
    kept: dict[str, float] = read_json(path) if path.exists() else {}
    if function not in kept and (value := FUNCTIONS[function](run)) is not None:
        write_json(path, kept := {**kept, function: value})
    return kept.get(function)


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


def _captions(run: ConditionRun) -> list[list[str]]:
    """Return the words of the test captions."""
    captions = read_json(evaluation_path(run.folder, "test"), "evaluate the run again")["captions"]
    return [caption.split() for caption in captions.values()]


def mean_length(run: ConditionRun) -> float:
    """Return the words of a test caption on average."""
    return fmean(map(len, _captions(run)))


def distinct_captions(run: ConditionRun) -> float:
    """Return the number of different test captions for each test image."""
    captions = _captions(run)
    return len({tuple(words) for words in captions}) / len(captions)


def sample_diversity(run: ConditionRun) -> float:
    """Return the self-CIDEr of NUM_SAMPLES sampled captions of each of the first NUM_IMAGES test images."""
    model, split = load_captioner_run(run.folder).model, run.recipe.data.split("test")
    indices = np.arange(min(NUM_IMAGES, len(split)))
    samples: dict[str, list[str]] = {}
    for seed in range(NUM_SAMPLES):
        config = model.generation_config.replace(do_sample=True, seed=seed)
        for image, caption in generate_captions(model, split, config=config, indices=indices).items():
            samples.setdefault(image, []).append(caption)
    return measure_diversity(samples).self_cider


def gradient_noise(run: ConditionRun) -> float | None:
    """Return the variance of the gradient of the second stage, divided by the squared norm of its mean.

    Of the model with which that stage began, over NUM_BATCHES random batches of BATCH_SIZE training images, each with
    samples of its own; the training takes larger batches or smaller ones. None where the stage is not self-critical.
    """
    config = run.recipe.stages[-1]
    if config.objective != "self_critical":
        return None
    model = load_captioner_run(run.folder).load_stage(1).model
    objective = Captioning(run.recipe.data.open(lambda _: None)).objective(model, config)
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
    _loss(objective, indices, generator).backward()
    parts = [p.grad if p.grad is not None else torch.zeros_like(p) for p in objective.model.parameters()]
    return torch.cat([part.flatten() for part in parts])


def _loss(objective: Objective, indices: np.ndarray, generator: torch.Generator) -> Tensor:
    """Return the loss of a batch in training."""
    objective.model.train()
    batch = {**objective.read(indices), **objective.sample_targets(indices, generator)}
    prepared = objective.prepare(indices, batch, 1)
    loss = prepared.finish(objective(batch, *prepared.inputs))
    return loss.sums[0] / max(prepared.normalizers[0], 1.0)


def kept_bytes(run: ConditionRun) -> float:
    """Return the bytes that a training step keeps for its backward pass, parameters not counted; of the last stage.

    It is what autograd saves for the first batch, each storage once, on average over NUM_DRAWS draws of what the
    training draws: heads and branches to drop, samples.
    """
    model, config = load_any(run.folder), run.recipe.stages[-1]
    task = TASKS.get(run.recipe.task)(run.recipe.data.open(lambda _: None))
    objective = task.objective(model, config)
    return fmean(_kept_by_step(objective, config.batch_size, seed) for seed in range(NUM_DRAWS))


def _kept_by_step(objective: Objective, batch_size: int, seed: int) -> int:
    """Return the bytes that autograd saves for the first batch."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in objective.model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    indices = np.arange(min(batch_size, len(objective.split)))
    torch.manual_seed(seed)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = _loss(objective, indices, torch.Generator().manual_seed(0))
    del loss  # lived so long, so that no storage was used twice
    return sum(kept.values())


def hallucination(run: ConditionRun) -> float:
    """Return CHAIR-i of the test captions of COCO's boxes."""
    captions = read_json(evaluation_path(run.folder, "test"), HINT)["captions"]
    return coco_boxes.hallucination(captions, Path(run.recipe.data.annotations).parent)


def relation_f1(run: ConditionRun) -> float:
    """Return the mean F1 score of the relations that the test captions of COCO's boxes state."""
    captions = read_json(evaluation_path(run.folder, "test"), HINT)["captions"]
    split = run.recipe.data.split("test")
    return coco_boxes.relation_f1(captions, dict(zip(split.ids, split.references, strict=True)))


def spice_score(run: ConditionRun) -> float | None:
    """Return SPICE of the captions of the first NUM_SPICE test images; None without the jars (LEGENDA_SPICE_JARS)."""
    if JARS_VARIABLE not in os.environ:
        return None
    captions = read_json(evaluation_path(run.folder, "test"), HINT)["captions"]
    split = run.recipe.data.split("test")
    references = dict(zip(split.ids, split.references, strict=True))
    images = list(captions)[:NUM_SPICE]
    words = [" ".join(ptb_tokenize(captions[image])) for image in images]
    groups = [[" ".join(ptb_tokenize(text)) for text in references[image]] for image in images]
    return spice(words, groups, cache=run.folder.parents[1] / "spice")[0]


FUNCTIONS: Mapping[str, Callable[[ConditionRun], float | None]] = {
    "kept": kept_bytes,
    "mean_length": mean_length,
    "distinct_captions": distinct_captions,
    "sample_diversity": sample_diversity,
    "gradient_noise": gradient_noise,
    "hallucination": hallucination,
    "relation_f1": relation_f1,
    "spice": spice_score,
}
"""Functions from a run to a number, by name."""
