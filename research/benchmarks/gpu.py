"""Check every model on a GPU against the CPU, and time every task with torch.compile off and on.

    python research/benchmarks/gpu.py --out gpu.json --compile off  # a CUDA device, a minute or two
    python research/benchmarks/gpu.py --out gpu.json                # and, after all models, the compiled ones
    python research/benchmarks/gpu.py --device cpu --tiny --models xlan --compile off

For each model the logits of 2 images, in float64 and float32, and in float64 the captions of beam search must equal
those of the CPU. X-Transformer's logits in float64 do so to 1e-7: its table of positions is in float32, as in the
release, and a GPU rounds sines otherwise. Then the tasks of models.py run. `xe compiled` is a cross-entropy step after
`model.compile(mode="reduce-overhead")`, `greedy compiled` and so on a search after `model.decoder.compile_step()`.
`fp16` trains for two epochs in mixed precision (in bf16 on CPUs). What fails is a row with the error, and the exit code
is 1.
`--matmul-precision high` (TensorFloat-32) sets `torch.set_float32_matmul_precision`.
"""

import copy
import math
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
import tyro

from legenda.data.captions import ScenesData
from legenda.decoding import beam_search
from legenda.io import write_json
from legenda.models import Captioner
from legenda.models.base import eval_mode
from legenda.regions import Regions
from legenda.tasks import Captioning
from legenda.training import TrainingConfig, train
from legenda.training.checkpoint import read_history
from models import LENGTH, MODELS, ROWS, make_captioner, make_regions, make_task

TASKS = ("xe", "self_critical", "greedy", "beam3", "latency", "fp16")
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
_FLOAT32_TABLE = {"xtransformer": 1e-7}
"""Tolerance in float64 of a model with sines in float32; one unit in the last place of them moves logits by 7e-9."""
_TINY = {"vocab_size": 50, "dim": 64}


@dataclass(frozen=True)
class Options:
    """What to run."""

    models: tuple[str, ...] = MODELS
    tasks: tuple[str, ...] = TASKS
    device: str = "cuda"
    images: int = 10
    repeats: int = 3
    """Calls after two warm-up calls, of which the fastest counts."""
    compile: Literal["off", "on", "both"] = "both"
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    tiny: bool = False
    """Small models, to test this script."""
    out: Path | None = None
    """A JSON file for the results."""


def main() -> None:
    """Run the checks and the tasks; print a line for each."""
    options = tyro.cli(Options, description=__doc__)
    torch.set_float32_matmul_precision(options.matmul_precision)
    rows: list[dict[str, Any]] = []
    for compiled in {"off": (False,), "on": (True,), "both": (False, True)}[options.compile]:
        for name in options.models:
            rows += _rows(options, name, compiled=compiled)
            if options.out is not None:
                write_json(options.out, rows)
    if any("error" in row for row in rows):
        sys.exit(1)


def _rows(options: Options, name: str, *, compiled: bool) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    captioner = make_captioner(name, **(_TINY if options.tiny else {}))
    given = make_regions(name, options.images).to(options.device)
    on_device = copy.deepcopy(captioner).to(options.device)
    jobs = {}
    if compiled:
        on_device.compile(mode="reduce-overhead")
        on_device.decoder.compile_step()
    else:
        checked = make_regions(name, 2)
        tolerances = {**_TOLERANCE, torch.float64: _FLOAT32_TABLE.get(name, _TOLERANCE[torch.float64])}
        for dtype, tolerance in tolerances.items():
            jobs[f"parity {dtype}"] = partial(_compare, captioner, checked, options.device, dtype, tolerance)
        if "fp16" in options.tasks:
            jobs["fp16"] = partial(_train_in_half, name, options.device)
    for task in (task for task in options.tasks if task != "fp16"):
        if not compiled or task != "self_critical":
            label = f"{task} compiled" if compiled else task
            jobs[label] = partial(_time, on_device, task, given, options.repeats)
    rows = []
    for task, job in jobs.items():
        try:
            row = {"model": name, "task": task, **job()}
        except Exception as error:  # whatever fails on this device is a result
            row = {"model": name, "task": task, "error": f"{type(error).__name__}: {error}"}
        rows.append(row)
        print(*(f"{value:.4g}" if isinstance(value, float) else value for value in row.values()), sep="  ", flush=True)
    return rows


def _compare(
    captioner: Captioner, regions: Regions, device: str, dtype: torch.dtype, tolerance: float
) -> dict[str, Any]:
    """Return the greatest difference of logits from the CPU's; raise where it or a caption is too far."""
    results = []
    tokens = torch.randint(1, captioner.config.vocab_size, (2, ROWS, LENGTH))
    for place in ("cpu", device):
        model = copy.deepcopy(captioner).to(place, dtype)
        there = _to_dtype(regions, dtype).to(place)
        with eval_mode(model):
            logits, captions = model(there, tokens.to(place)), beam_search(model, there, beam_size=3).tokens
        results.append((logits.cpu(), captions.cpu()))
    (logits, captions), (other_logits, other_captions) = results
    difference = (logits - other_logits).abs().max().item()
    same = torch.equal(captions, other_captions)
    if not (difference < tolerance and (same or dtype == torch.float32)):
        raise AssertionError(f"logits differ by {difference:.3g}, captions are {'equal' if same else 'different'}")
    return {"difference": difference, "captions_equal": same}


def _train_in_half(name: str, device: str) -> dict[str, Any]:
    """Train a small model of scenes for two epochs in fp16, whose gradients are scaled and clipped; on CPUs in bf16."""
    precision = "bf16" if device == "cpu" else "fp16"
    stage = TrainingConfig(epochs=2, batch_size=10, eval_beam_size=1, precision=precision)
    task = Captioning(ScenesData(train=40, validation=4).open(lambda _: None))
    with TemporaryDirectory() as folder:
        result = train(name, {}, task, (stage,), folder, sections={}, device=device)
        losses = [record["loss"] for record in read_history(Path(folder)) if "loss" in record]
        losses += [record["validation"]["loss"] for record in read_history(Path(folder)) if "validation" in record]
    if not all(map(math.isfinite, losses)):
        raise AssertionError(f"losses of training in {precision} are {losses}")
    return {"precision": precision, "loss": losses[-1], "seconds": result.seconds}


def _to_dtype(regions: Regions, dtype: torch.dtype) -> Regions:
    boxes = None if regions.boxes is None else regions.boxes.to(dtype)
    return replace(regions, features=regions.features.to(dtype), boxes=boxes)


def _time(captioner: Captioner, task: str, regions: Regions, repeats: int) -> dict[str, Any]:
    if task == "latency":
        regions = regions[:1]
    run, seconds = make_task(captioner, task, regions), []
    for call in range(2 + repeats):
        start = time.perf_counter()
        run()
        if regions.features.device.type == "cuda":
            torch.cuda.synchronize()
        if call > 1:
            seconds.append(time.perf_counter() - start)
    return {"seconds": min(seconds), "images_per_second": len(regions) / min(seconds)}


if __name__ == "__main__":
    main()
