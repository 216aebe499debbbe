"""Times every model at its paper's size: training steps, decoding, memory, and the share of the machine's peak.

    python benchmarks/models.py --out now.json
    python benchmarks/models.py --models xlan mdsan --tasks xe beam3 --precision bf16
    python benchmarks/models.py --compare before.json now.json

A batch is 10 images (36 regions of 2,048 channels, or 49 cells for MD-SAN) with 5 rows of 17 words. No model may end a
caption, so that every search runs its full length, as untrained models do. Each model and task runs in a process of its
own, which also measures the matrix-product peak: times of different machines, or of busy ones, are compared as
shares of it. Operations are those that the task executes, counted by torch; CPU seconds are those of the process.
"""

import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from torch.utils.flop_counter import FlopCounterMode

from legenda.datasets.captions import CaptionDataset
from legenda.decoding import beam_search, greedy
from legenda.errors import UserError
from legenda.io import read_json, write_json
from legenda.models import Captioner, create_model, describe_model
from legenda.regions import Regions
from legenda.tasks.base import Objective, regions_to_batch
from legenda.tasks.caption_objectives import CrossEntropy
from legenda.tasks.config import SelfCriticalConfig
from legenda.tasks.rewards import Rewards
from legenda.tasks.self_critical import SelfCriticalObjective
from legenda.training import TrainingConfig

MODELS = ("transformer", "ngsan", "aoanet", "xlan", "xtransformer", "mdsan")
TASKS = ("xe", "self_critical", "greedy", "beam3", "beam5", "latency", "throughput")
IMAGES, ROWS, WORDS = 10, 5, 17
_LONGEST = {"aoanet": 20, "mdsan": 20}
"""Words of a decoded caption where it is not WORDS."""
_LARGER = (2, 4, 8)
"""Times as many images at once, of which "throughput" (beam 3) takes the best."""
_SIDE = 2048
"""Of the square matrices whose product is the peak."""


@dataclass(frozen=True)
class Options:
    """What to measure, or what to compare."""

    models: tuple[str, ...] = MODELS
    tasks: tuple[str, ...] = TASKS
    precision: Literal["float32", "bf16"] = "float32"
    threads: int = 1
    repeats: int = 3
    """The fewest CPU seconds of so many calls count, after one that warms up."""
    images: int = IMAGES
    device: str = "cpu"
    out: Path | None = None
    """A JSON file for the numbers."""
    compare: tuple[Path, Path] | None = None
    """Two files of numbers: the second's times are divided by the first's."""


def main() -> None:
    """Measures each model and task in a process of its own, prints and writes the table."""
    if len(sys.argv) == 3 and sys.argv[1] == "--case":
        print(json.dumps(measure(**json.loads(sys.argv[2]))))
        return
    options = tyro.cli(Options, description=__doc__)
    if options.compare is not None:
        _compare(*options.compare)
        return
    found = []
    for model in options.models:
        for task in options.tasks:
            sizes = [1] if task == "latency" else [options.images]
            if task == "throughput":
                sizes = [factor * options.images for factor in _LARGER]
            cases = [_in_a_process(options, model, task, images) for images in sizes]
            found.append(max(cases, key=lambda case: case["images_per_second"]))
            print(_line(found[-1]), flush=True)
    if options.out is not None:
        write_json(options.out, found)


def _in_a_process(options: Options, model: str, task: str, images: int) -> dict[str, Any]:
    case = {"model": model, "task": task, "images": images, "threads": options.threads}
    case |= {"precision": options.precision, "repeats": options.repeats, "device": options.device}
    done = subprocess.run(
        [sys.executable, __file__, "--case", json.dumps(case)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{model} {task} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _line(row: dict[str, Any]) -> str:
    share = f"{row['share_of_peak']:.0%} of {row['peak_gflops']:.0f} GFLOP/s"
    return (
        f"{row['model']:<13} {row['task']:<14} {row['images']:3} images  cpu {row['cpu_seconds']:7.3f} s  "
        f"wall {row['wall_seconds']:7.3f} s  {row['images_per_second']:7.2f} images/s  {row['gflop']:8.1f} GFLOP  "
        f"{share}  {row['peak_memory_mb']:.0f} MB"
    )


def measure(
    model: str, task: str, images: int, threads: int, precision: str, repeats: int, device: str
) -> dict[str, Any]:
    """The numbers of one model and one task."""
    if task not in TASKS:
        raise UserError(f"there is no task {task!r}; choose from {', '.join(TASKS)}")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    built, pictures = make_captioner(model), make_pictures(model, images)
    peak = _peak(precision, device)

    def run(call: Callable[[], None], device: str = device) -> None:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
            call()
        if device != "cpu":
            torch.cuda.synchronize()

    # Operations are counted on the CPU, whatever the device.
    call = make_task(built, task, pictures)
    with FlopCounterMode(display=False) as counter:
        run(call, "cpu")
    if device != "cpu":
        call = make_task(built.to(device), task, pictures.to(device))
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
        "share_of_peak": gflop / seconds / peak,
        "peak_memory_mb": memory,
    }


def timed(run: Callable[[], None]) -> tuple[float, float]:
    """CPU seconds and seconds of the clock."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.process_time() - cpu, time.perf_counter() - wall


def _peak(precision: str, device: str) -> float:
    """GFLOP of matrix products in a CPU second, or in a second of another device."""
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    one, other = (torch.randn(_SIDE, _SIDE, device=device, dtype=kind) for _ in range(2))

    def run() -> None:
        one @ other
        if device != "cpu":
            torch.cuda.synchronize()

    run()
    cpu, wall = (min(kind) for kind in zip(*(timed(run) for _ in range(8)), strict=True))
    return 2 * _SIDE**3 / (cpu if device == "cpu" else wall) / 1e9


def make_captioner(name: str, **changes: int) -> Captioner:
    """A model of its paper's size, with random weights, whose captions never end."""
    entry = describe_model(name)
    model = create_model(name, **{"vocab_size": entry.vocab_size} | changes)
    model.generation_config = replace(
        model.generation_config,
        suppress_tokens=(model.generation_config.eos_token_id,),
        max_length=_LONGEST.get(name, WORDS),
    )
    return model


def make_pictures(name: str, images: int, regions: int | None = None) -> Regions:
    """Drawn features of 2,048 channels; without a number of regions those of the model's paper."""
    if name.startswith("mdsan"):
        side = 7 if regions is None else math.isqrt(regions)
        return Regions.from_grid(torch.randn(images, side * side, 2048), side, side)
    regions = 36 if regions is None else regions
    corners = torch.rand(images, regions, 2, 2).sort(dim=2).values
    return Regions(torch.randn(images, regions, 2048), corners.flatten(2) * 0.9 + torch.tensor([0.0, 0.0, 0.1, 0.1]))


def make_task(model: Captioner, task: str, pictures: Regions, rows: int = ROWS) -> Callable[[], None]:
    """What is timed: a step of training, or a search for all pictures ("beam7" has 7 hypotheses)."""
    if task in ("xe", "self_critical"):
        return _step(model, task, pictures, rows)
    model.eval()
    beams = int(task.removeprefix("beam")) if task.startswith("beam") else 3

    def search() -> None:
        with torch.inference_mode():
            if task == "greedy":
                greedy(model, pictures)
            else:
                beam_search(model, pictures, beam_size=beams)

    return search


def _step(model: Captioner, task: str, pictures: Regions, rows: int) -> Callable[[], None]:
    """One step of training, with the clipping and Adam of the recipes."""
    model.train()
    objective = _objective(model, task, pictures)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6, fused=True)
    words = torch.randint(1, model.config.vocab_size, (len(pictures), rows, WORDS + 1))
    batch = {**regions_to_batch(pictures), "captions": words.to(pictures.features.device)}
    positions = np.arange(len(pictures))

    def step() -> None:
        prepared = objective.prepare(positions, batch, 1)
        optimizer.zero_grad(set_to_none=True)
        loss = prepared.finish(objective(batch, *prepared.inputs))
        (loss.sums[0] / prepared.normalizers[0]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def _objective(model: Captioner, task: str, pictures: Regions) -> Objective:
    """The objective of the model's paper; the reward is drawn, for its own cost is in benchmarks/metrics.py."""
    nothing = CaptionDataset((), (), lambda _: pictures, "drawn", "drawn")
    if task == "xe":
        return CrossEntropy(model, TrainingConfig(), nothing)
    beams = SelfCriticalConfig(num_samples=ROWS, sample_method="beam", baseline="mean", rewards={"drawn": 1.0})
    samples = SelfCriticalConfig(num_samples=ROWS, baseline="greedy", rewards={"drawn": 1.0})
    settings = replace(
        beams if model.name.startswith("mdsan") else samples, max_length=model.generation_config.max_length
    )
    rewards = Rewards([(1.0, lambda _, tokens: np.random.default_rng(0).random(tokens.shape[:2]))])
    return SelfCriticalObjective(model, TrainingConfig(self_critical=settings), nothing, rewards)


def _compare(before: Path, now: Path) -> None:
    """Seconds of the second file divided by those of the first, and the same with each machine's peak taken out.

    CPU seconds on a CPU, those of the clock on another device.
    """
    hint = "give two files that --out has written"
    old, new = (
        {(row["model"], row["task"], row["precision"], row["device"]): row for row in read_json(path, hint)}
        for path in (before, now)
    )
    for key in sorted(old.keys() & new.keys()):
        kind = "cpu_seconds" if old[key]["device"] == "cpu" else "wall_seconds"
        seconds = new[key][kind] / old[key][kind]
        scaled = seconds * new[key]["peak_gflops"] / old[key]["peak_gflops"]
        memory = new[key]["peak_memory_mb"] / old[key]["peak_memory_mb"]
        print(f"{' '.join(key):<36} seconds x {seconds:.2f}  at equal peaks x {scaled:.2f}  memory x {memory:.2f}")


if __name__ == "__main__":
    main()
