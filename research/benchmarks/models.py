"""Time every model at its paper's size: training steps, decoding, memory, and the fraction of peak FLOP/s.

    python research/benchmarks/models.py --out now.json
    python research/benchmarks/models.py --models xlan mdsan --tasks xe beam3 --precision bf16
    python research/benchmarks/models.py --compare before.json now.json

A batch is 10 images (36 regions of 2,048 channels, or 49 cells for MD-SAN) with 5 rows of 17 tokens. The end token is
suppressed, so every search runs to its maximum length. Each model and task runs in its own process, which also measures
the peak of matrix products: times of different or busy machines are compared as fractions of it. FLOPs are those that
the task executes, counted by torch; CPU seconds are those of the process. On CPUs
searches compute with packed weights, as the commands do.
"""

import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from torch.utils.flop_counter import FlopCounterMode

from legenda.compute import ComputeOptions
from legenda.data.captions import CaptionDataset
from legenda.decoding import beam_search, greedy
from legenda.errors import LegendaError
from legenda.io import read_json, write_json
from legenda.models import Captioner, create_model, describe_model
from legenda.models.base import inference
from legenda.models.packing import PackedWeights
from legenda.regions import Regions
from legenda.tasks.base import Objective, SelfCriticalConfig, regions_to_batch
from legenda.tasks.objectives import CrossEntropy
from legenda.tasks.self_critical import Rewards, SelfCriticalObjective
from legenda.training import TrainingConfig

MODELS = ("transformer", "ngsan", "aoanet", "xlan", "xtransformer", "mdsan")
TASKS = ("xe", "self_critical", "greedy", "beam3", "beam5", "latency", "throughput")
IMAGES, ROWS, LENGTH = 10, 5, 17
_MAX_LENGTH = {"aoanet": 20, "mdsan": 20}
"""Tokens of a generated caption where they are not LENGTH."""
_BATCH_FACTORS = (2, 4, 8)
"""Multiples of the batch size, of which "throughput" (beam 3) reports the best."""
_SIDE = 2048
"""Side of the square matrices whose product measures the peak."""


@dataclass(frozen=True)
class Options:
    """What to measure, or what to compare."""

    models: tuple[str, ...] = MODELS
    tasks: tuple[str, ...] = TASKS
    precision: Literal["float32", "bf16"] = "float32"
    threads: int = 1
    repeats: int = 3
    """Calls after a warm-up call, of which the fastest counts."""
    images: int = IMAGES
    device: str = "cpu"
    out: Path | None = None
    """A JSON file for the results."""
    compare: tuple[Path, Path] | None = None
    """Two files of results: times of the second divided by those of the first."""


def main() -> None:
    """Measure each model and task in its own process; print and write the results."""
    if len(sys.argv) == 3 and sys.argv[1] == "--case":
        print(json.dumps(measure(**json.loads(sys.argv[2]))))
        return
    options = tyro.cli(Options, description=__doc__)
    if options.compare is not None:
        _compare(*options.compare)
        return
    results = []
    for model in options.models:
        for task in options.tasks:
            sizes = [1] if task == "latency" else [options.images]
            if task == "throughput":
                sizes = [factor * options.images for factor in _BATCH_FACTORS]
            cases = [_run_in_process(options, model, task, images) for images in sizes]
            results.append(max(cases, key=lambda case: case["images_per_second"]))
            print(_line(results[-1]), flush=True)
    if options.out is not None:
        write_json(options.out, results)


def _run_in_process(options: Options, model: str, task: str, images: int) -> dict[str, Any]:
    case = {"model": model, "task": task, "images": images, "threads": options.threads}
    case |= {"precision": options.precision, "repeats": options.repeats, "device": options.device}
    done = subprocess.run(
        [sys.executable, __file__, "--case", json.dumps(case)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{model} {task} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _line(row: dict[str, Any]) -> str:
    fraction = f"{row['fraction_of_peak']:.0%} of {row['peak_gflops']:.0f} GFLOP/s"
    return (
        f"{row['model']:<13} {row['task']:<14} {row['images']:3} images  cpu {row['cpu_seconds']:7.3f} s  "
        f"wall {row['wall_seconds']:7.3f} s  {row['images_per_second']:7.2f} images/s  {row['gflop']:8.1f} GFLOP  "
        f"{fraction}  {row['peak_memory_mb']:.0f} MB"
    )


def measure(
    model: str, task: str, images: int, threads: int, precision: str, repeats: int, device: str
) -> dict[str, Any]:
    """Return the measurements of one model and task."""
    if task not in TASKS:
        raise LegendaError(f"there is no task {task!r}; choose from {', '.join(TASKS)}")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    captioner, regions = make_captioner(model), make_regions(model, images)
    peak = _peak(precision, device)

    trains = task in ("xe", "self_critical")
    autocasts = precision == "bf16" and (trains or device != "cpu")

    def run(call: Callable[[], None], device: str = device) -> None:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=autocasts):
            call()
        if device != "cpu":
            torch.cuda.synchronize()

    # FLOPs are counted on the CPU, whatever the device.
    call = make_task(captioner, task, regions)
    with FlopCounterMode(display=False) as counter:
        run(call, "cpu")
    if device != "cpu":
        call = make_task(captioner.to(device), task, regions.to(device))
    elif not trains:
        ComputeOptions(device=device, precision=precision).apply(captioner)
        call = make_task(captioner, task, regions, weights=PackedWeights())
    run(call)
    times = [timed(lambda: run(call)) for _ in range(repeats)]
    cpu, wall = (min(kind) for kind in zip(*times, strict=True))
    seconds = cpu if device == "cpu" else wall
    if device == "cpu":
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    else:
        memory = torch.cuda.max_memory_allocated() / 2**20
    gflop = counter.get_total_flops() / 1e9
    return {
        "model": model,
        "task": task,
        "images": images,
        "device": device,
        "threads": threads,
        "precision": precision,
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "images_per_second": images / wall,
        "gflop": gflop,
        "peak_gflops": peak,
        "fraction_of_peak": gflop / seconds / peak,
        "peak_memory_mb": memory,
    }


def timed(run: Callable[[], None]) -> tuple[float, float]:
    """Return CPU seconds and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.process_time() - cpu, time.perf_counter() - wall


def _peak(precision: str, device: str) -> float:
    """Return the GFLOP/s of matrix products, per CPU second or per second of another device."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    first, second = (torch.randn(_SIDE, _SIDE, device=device, dtype=dtype) for _ in range(2))

    def run() -> None:
        first @ second
        if device != "cpu":
            torch.cuda.synchronize()

    run()
    cpu, wall = (min(kind) for kind in zip(*(timed(run) for _ in range(8)), strict=True))
    return 2 * _SIDE**3 / (cpu if device == "cpu" else wall) / 1e9


def make_captioner(name: str, **changes: int) -> Captioner:
    """Return a model of its paper's size with random weights and a suppressed end token."""
    entry = describe_model(name)
    model = create_model(name, **{"vocab_size": entry.vocab_size} | changes)
    model.generation_config = model.generation_config.replace(
        suppress_tokens=(model.generation_config.eos_token_id,),
        max_length=_MAX_LENGTH.get(name, LENGTH),
    )
    return model


def make_regions(name: str, images: int, num_regions: int | None = None) -> Regions:
    """Return random features of 2,048 channels; by default as many regions as in the model's paper."""
    if name.startswith("mdsan"):
        side = 7 if num_regions is None else math.isqrt(num_regions)
        return Regions.from_grid(torch.randn(images, side * side, 2048), side, side)
    num_regions = 36 if num_regions is None else num_regions
    corners = torch.rand(images, num_regions, 2, 2).sort(dim=2).values
    return Regions(
        torch.randn(images, num_regions, 2048), corners.flatten(2) * 0.9 + torch.tensor([0.0, 0.0, 0.1, 0.1])
    )


def make_task(
    model: Captioner, task: str, regions: Regions, rows: int = ROWS, weights: PackedWeights | None = None
) -> Callable[[], None]:
    """Return the timed function: a training step, or a search over all images ("beam7" has a beam size of 7).

    weights: keeps the packed weights of searches; None computes with the parameters.
    """
    if task in ("xe", "self_critical"):
        return _step(model, task, regions, rows)
    model.eval()
    beams = int(task.removeprefix("beam")) if task.startswith("beam") else 3

    def search() -> None:
        with nullcontext(model) if weights is None else inference(model, weights) as searched, torch.inference_mode():
            if task == "greedy":
                greedy(searched, regions)
            else:
                beam_search(searched, regions, beam_size=beams)

    return search


def _step(model: Captioner, task: str, regions: Regions, rows: int) -> Callable[[], None]:
    """Return a training step with gradient clipping and Adam, as in the recipes."""
    model.train()
    objective = _objective(model, task, regions)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6, fused=True)
    tokens = torch.randint(1, model.config.vocab_size, (len(regions), rows, LENGTH + 1))
    batch = {**regions_to_batch(regions), "captions": tokens.to(regions.features.device)}
    indices = np.arange(len(regions))

    def step() -> None:
        prepared = objective.prepare(indices, batch, 1)
        optimizer.zero_grad(set_to_none=True)
        loss = prepared.finish(objective(batch, *prepared.inputs))
        (loss.sums[0] / prepared.normalizers[0]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def _objective(model: Captioner, task: str, regions: Regions) -> Objective:
    """Return the objective of the model's paper; rewards are random, as metrics.py times the real ones."""
    split = CaptionDataset((), (), lambda _: regions, "random", "random")
    if task == "xe":
        return CrossEntropy(model, TrainingConfig(), split)
    beams = SelfCriticalConfig(num_samples=ROWS, sample_method="beam", baseline="mean", rewards={"random": 1.0})
    samples = SelfCriticalConfig(num_samples=ROWS, baseline="greedy", rewards={"random": 1.0})
    settings = beams if model.name.startswith("mdsan") else samples
    settings = settings.replace(max_length=model.generation_config.max_length)
    rewards = Rewards([(1.0, lambda _, tokens: np.random.default_rng(0).random(tokens.shape[:2]))])
    return SelfCriticalObjective(model, TrainingConfig(self_critical=settings), split, rewards)


def _compare(before: Path, after: Path) -> None:
    """Print seconds of the second file divided by those of the first, also relative to each machine's peak.

    CPU seconds on a CPU, wall seconds on another device.
    """
    hint = "give two files written by --out"
    old, new = (
        {(row["model"], row["task"], row["precision"], row["device"]): row for row in read_json(path, hint)}
        for path in (before, after)
    )
    for key in sorted(old.keys() & new.keys()):
        kind = "cpu_seconds" if old[key]["device"] == "cpu" else "wall_seconds"
        seconds = new[key][kind] / old[key][kind]
        scaled = seconds * new[key]["peak_gflops"] / old[key]["peak_gflops"]
        memory = new[key]["peak_memory_mb"] / old[key]["peak_memory_mb"]
        print(f"{' '.join(key):<36} seconds x {seconds:.2f}  at equal peaks x {scaled:.2f}  memory x {memory:.2f}")


if __name__ == "__main__":
    main()
