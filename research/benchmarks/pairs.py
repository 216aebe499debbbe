"""Time two sides in turn in the 20 cells of the table of speed: commits of this library, or a released code.

    git worktree add /tmp/before COMMIT
    python research/benchmarks/pairs.py captions_val2014.json.gz /tmp/before . --out pairs.json
    python research/benchmarks/pairs.py captions_val2014.json.gz released.py . --models xlan --tasks xe

A side is a checkout of this library, or a Python file that wraps one of a released code: its function
`make(model, task, batches)` returns a function that runs the task on batch number n. A batch holds for each image five
captions of COCO's as lists of at most 16 token ids; `VOCABULARY` has the number of tokens of each model.

Each side has a process of its own with one thread, and after a call to warm up they take turns, A B, B A, so that both
meet the same load. Ratios are those of the medians of CPU seconds; the share of the peak is that of this core's matrix
products, measured in the same process, and FLOPs are those that the side executes. Weights are random: searches run to
their maximum length, and sampled captions are cut to the lengths of COCO's.
"""

import gzip
import importlib.util
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

VOCABULARY = {"xlan": 9488, "xtransformer": 9488, "aoanet": 10369, "mdsan": 10201}
TASKS = {"xe": 10, "self_critical": 10, "beam3": 10, "beam3_one": 1, "greedy": 10}
"""Images of a batch."""
ROWS, WORDS = 5, 16
Batch = list[list[list[int]]]


@dataclass(frozen=True)
class Options:
    """What to time."""

    captions: Annotated[Path, tyro.conf.Positional]
    """COCO's captions_*.json, perhaps gzipped."""
    sides: Annotated[tuple[str, str], tyro.conf.Positional]
    models: tuple[str, ...] = tuple(VOCABULARY)
    tasks: tuple[str, ...] = tuple(TASKS)
    rounds: int = 5
    """Calls of each side after the first."""
    images: int | None = None
    """Images of a batch where another number is wanted."""
    out: Path | None = None
    """A JSON file for the results."""


def main() -> None:
    """Time each cell, print its line and write the results."""
    if sys.argv[1] == "--worker":
        work(sys.argv[2], **json.loads(sys.argv[3]))
        return
    options = tyro.cli(Options, description=__doc__)
    rows = []
    for model in options.models:
        for task in options.tasks:
            images = options.images or TASKS[task]
            batches = read_batches(options.captions, images, options.rounds + 1, VOCABULARY[model])
            rows.append({"model": model, "task": task, "images": images, **pair(options.sides, model, task, batches)})
            print(line(rows[-1]), flush=True)
            if options.out is not None:
                options.out.write_text(json.dumps(rows, indent=1))


def line(row: dict[str, Any]) -> str:
    """Return the numbers of a cell as text, the first side's before the second's."""
    first, second = row["sides"]
    return (
        f"{row['model']:<13} {row['task']:<14} {row['images']:3} images"
        f"  {first['seconds']:.3f} s  {second['seconds']:.3f} s"
        f"  ratio {row['ratio']:.2f}, {min(row['ratios']):.2f} to {max(row['ratios']):.2f}"
        f"  memory {first['memory_mb']:.0f} and {second['memory_mb']:.0f} MB"
        f"  {first['share_of_peak']:.0%} and {second['share_of_peak']:.0%} of {second['peak_gflops']:.0f} GFLOP/s"
    )


def read_batches(path: Path, images: int, count: int, vocabulary: int) -> list[Batch]:
    """Return batches of images with five captions each, drawn with a fixed seed; a word's id is a hash of it."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        content = json.load(file)
    captions: dict[int, list[list[int]]] = {}
    for entry in content["annotations"]:
        words = re.findall(r"[\w']+", entry["caption"].lower())[:WORDS] or ["nothing"]
        ids = [zlib.crc32(word.encode()) % (vocabulary - 9) + 5 for word in words]
        captions.setdefault(entry["image_id"], []).append(ids)
    known = [rows[:ROWS] for rows in captions.values() if len(rows) >= ROWS]
    rng = random.Random(0)
    return [rng.sample(known, images) for _ in range(count)]


def pair(sides: Sequence[str], model: str, task: str, batches: list[Batch]) -> dict[str, Any]:
    """Return the measurements of both sides in one cell."""
    case = json.dumps({"model": model, "task": task, "batches": batches})
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", side, case], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for side in sides
    ]
    replies: list[list[dict[str, float]]] = [[] for _ in workers]
    for number in range(len(batches)):
        order = list(enumerate(workers))
        for index, worker in order if number % 2 else order[::-1]:
            assert worker.stdin is not None
            assert worker.stdout is not None
            print(number, file=worker.stdin, flush=True)
            reply = worker.stdout.readline()
            if not reply:
                raise SystemExit(f"{sides[index]}: {model} {task} failed")
            replies[index].append(json.loads(reply))
    for worker in workers:
        worker.communicate()
    times = [[reply["seconds"] for reply in own[1:]] for own in replies]
    ratios = [first / second for first, second in zip(*times, strict=True)]
    parts = [{**own[0], **own[-1]} for own in replies]
    for part, own_times in zip(parts, times, strict=True):
        part["seconds"] = statistics.median(own_times)
        part["share_of_peak"] = part["gflop"] / part["seconds"] / part["peak_gflops"]
    return {"sides": parts, "ratio": parts[0]["seconds"] / parts[1]["seconds"], "ratios": ratios}


def work(side: str, model: str, task: str, batches: list[Batch]) -> None:
    """Run one side: a batch for each number that is read, after whose first FLOPs and the peak are measured."""
    path = Path(side)
    if path.is_dir():
        sys.path[:0] = [str(path.resolve() / part) for part in ("src", "research/benchmarks")]
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    torch.set_num_threads(1)
    torch.manual_seed(0)
    module: Any = sys.modules["__main__"]
    if not path.is_dir():
        spec = importlib.util.spec_from_file_location("side", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    call = module.make(model, task, batches)
    for first, text in enumerate(sys.stdin):
        torch.manual_seed(int(text))
        reply: dict[str, float] = {}
        if first == 0:
            with FlopCounterMode(display=False) as counter:
                call(int(text))
            reply = {"gflop": counter.get_total_flops() / 1e9, "peak_gflops": peak()}
        began = time.process_time()
        if first:
            call(int(text))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**reply, "seconds": time.process_time() - began, "memory_mb": memory}), flush=True)


def peak() -> float:
    """Return the GFLOP/s of products of square matrices, per CPU second."""
    import torch

    first, second = torch.randn(2, 2048, 2048)
    seconds = []
    for _ in range(4):
        began = time.process_time()
        first @ second
        seconds.append(time.process_time() - began)
    return 2 * 2048**3 / min(seconds) / 1e9


def make(model: str, task: str, batches: list[Batch]) -> Callable[[int], None]:
    """Return the function that runs a task of this library on a batch."""
    import torch

    import models

    images = len(batches[0])
    captioner, regions = models.make_captioner(model, vocab_size=VOCABULARY[model]), models.make_regions(model, images)
    if task not in ("xe", "self_critical"):
        models.ComputeOptions(device="cpu").apply(captioner)
        arguments = {"weights": models.PackedWeights()} if hasattr(models, "PackedWeights") else {}
        search = models.make_task(captioner, task.removesuffix("_one"), regions, **arguments)
        return lambda _: search()
    captioner.train()
    objective: Any = models._objective(captioner, task, regions)
    config = captioner.generation_config
    optimizer = torch.optim.Adam(captioner.parameters(), lr=1e-6, fused=True)
    indices = np.arange(images)
    lengths: torch.Tensor
    if task == "self_critical":
        sample, endless = objective._sample, objective.generation_config

        def cut(*inputs: Any) -> Any:
            objective.generation_config = endless
            tokens, *others = sample(*inputs)
            objective.generation_config = endless.replace(suppress_tokens=())  # the end has a probability, too
            ended = torch.arange(tokens.shape[-1]) >= lengths.clamp(max=tokens.shape[-1] - 1).unsqueeze(-1)
            return tokens.masked_fill(ended, config.eos_token_id), *others

        objective._sample = cut

    def step(number: int) -> None:
        nonlocal lengths
        rows = batches[number]
        lengths = torch.tensor([[len(caption) for caption in image] for image in rows])
        tokens = torch.full((images, ROWS, int(lengths.max()) + 2), -1)
        for image, captions in enumerate(rows):
            for row, ids in enumerate(captions):
                own = [config.bos_token_id, *ids, config.eos_token_id]
                tokens[image, row, : len(own)] = torch.tensor(own)
        batch = {**models.regions_to_batch(regions), "captions": tokens}
        prepared = objective.prepare(indices, batch, 1)
        optimizer.zero_grad(set_to_none=True)
        loss = prepared.finish(objective(batch, *prepared.inputs))
        (loss.sums[0] / prepared.normalizers[0]).backward()
        torch.nn.utils.clip_grad_norm_(captioner.parameters(), 1.0)
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
