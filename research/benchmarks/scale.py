"""Measure time and memory of captioning many images: print one line for each size.

    OMP_NUM_THREADS=1 python research/benchmarks/scale.py --folder legenda-scale --sizes 2000 20000 --workers 2
    OMP_NUM_THREADS=1 python research/benchmarks/scale.py --folder legenda-scale --tiny --sizes 10000 1000000

200 scenes are drawn, and listings of the given sizes repeat their names, so that no disk is filled; for every name the
image is read, extracted and captioned, by a small model with random weights. The lines are: the steps of one process
without Ray; the listing of a million names; `legenda caption --engine ray`, with the peak memory of its driver and of
its largest worker. Each line ends with the load of the machine.

--tiny: the smallest images and model, so that a million images can be captioned in minutes: images of 32 x 32, the mean
colors of examples/my_extractor.py, a model of 16 channels, beam size 1, batches of 64. Only Ray is measured then.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import torch

import legenda
from legenda.config import to_json
from legenda.data.captions import ScenesData
from legenda.data.scenes import draw_scene, make_scene
from legenda.extractors import load_extractor, run_extractor
from legenda.images import read_image
from legenda.images.shards import index_listing, write_sorted
from legenda.pipeline import open as open_pipeline

DRAWN = 200
MILLION = 1_000_000


def report(what: str, value: str) -> None:
    print(f"{what:<44} {value:>58}   load {os.getloadavg()[0]:.1f}", flush=True)


@dataclass(frozen=True)
class Work:
    """The images, the extractor, the model and the options."""

    side: int | None
    """The side of the images in pixels; None for that of scenes."""
    extractor: str | None
    """The file of the extractor; None for the extractor of scenes."""
    model: str
    sizes: dict[str, int]
    options: tuple[str, ...]
    """Options of `legenda caption`."""


SMALL = Work(
    None,
    None,
    "ngsan",
    {"dim": 96, "num_heads": 4, "num_layers": 2, "ff_dim": 192, "geometry_dim": 16},
    (),
)
TINY = Work(
    32,
    str(Path(__file__).resolve().parents[2] / "examples" / "my_extractor.py"),
    "transformer",
    {"dim": 16, "num_heads": 2, "num_layers": 1, "ff_dim": 32},
    ("--beam-size", "1", "--batch-size", "64"),
)


def make_images(folder: Path, work: Work) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:03d}.png" for number in range(DRAWN)]
    for number, path in enumerate(paths):
        if not path.exists():
            image = draw_scene(make_scene("fresh", number))
            image = image if work.side is None else image.resize((work.side, work.side))
            image.save(path)
    return paths


def make_run(folder: Path, work: Work) -> Path:
    """Save an untrained run folder."""
    data = ScenesData(train=40, validation=2)
    opened = data.open(lambda _: None)
    extractor, feature_dim = opened.train.extractor, opened.feature_dim
    if work.extractor is not None:
        extractor, feature_dim = load_extractor(work.extractor).name, 3
    torch.manual_seed(0)
    model = legenda.create_model(
        work.model, vocab_size=len(opened.vocabulary), feature_dim=feature_dim, **work.sizes
    ).eval()
    model.vocabulary = opened.vocabulary
    return model.save(folder, recipe=f"scenes.{work.model}", data=to_json(data, folder), extractor=extractor)


def one_process(run: Path, images: list[Path]) -> None:
    pipeline = open_pipeline(run)
    torch.set_num_threads(1)

    def took(what: str, began: float, used: float) -> None:
        wall, used = (time.perf_counter() - began) / DRAWN, (time.process_time() - used) / DRAWN
        report(what, f"{wall * 1e3:.2f} ms an image ({used * 1e3:.2f} ms of CPU time)")

    began, used = time.perf_counter(), time.process_time()
    read = [read_image(path) for path in images]
    took("one process: reading", began, used)
    began, used = time.perf_counter(), time.process_time()
    run_extractor(pipeline.extractor, read, images)
    took("one process: extracting regions", began, used)
    began, used = time.perf_counter(), time.process_time()
    list(pipeline.caption_files([str(path) for path in images]))
    took("one process: these and captioning, beam 3", began, used)


def peaks(root: int) -> Iterator[tuple[bool, int]]:
    """Yield for a process and its descendants whether it is a worker, and its peak memory in KiB."""
    waiting = [root]
    while waiting:
        process = waiting.pop()
        try:
            below = Path(f"/proc/{process}/task/{process}/children").read_text().split()
            status = Path(f"/proc/{process}/status").read_text()
            name = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        waiting += map(int, below)
        peak = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
        if process == root or name.startswith("ray::"):
            yield process != root, peak


def with_ray(run: Path, images: list[Path], folder: Path, size: int, workers: int, work: Work) -> None:
    listing, out = folder / f"names-{size}.txt", folder / f"out-{size}"
    listing.write_text("".join(f"{path}\n" for path in islice(cycle(images), size)))
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "legenda", "caption", f"@{listing}", "--model", str(run), "--engine", "ray"]
    command += ["--workers", str(workers), "--out", str(out), *work.options]
    command += [] if work.extractor is None else ["--extractor", work.extractor]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    peak_memory = {False: 0, True: 0}
    while process.poll() is None:
        for worker, peak in peaks(process.pid):
            peak_memory[worker] = max(peak_memory[worker], peak)
        time.sleep(1)
    assert process.stdout is not None
    output = process.stdout.read().strip()
    if process.returncode:
        raise SystemExit(f"the command failed; run it to see the error: {' '.join(command)}")
    lines = sum(1 for path in out.glob("captions-*.jsonl") for line in path.open() if "captions" in json.loads(line))
    assert lines == size
    memory = f"driver {peak_memory[False] / 2**10:.0f} MiB, worker {peak_memory[True] / 2**10:.0f} MiB"
    report(f"{size} names, {workers} workers of Ray", f"{output.split('by this call in ')[1]}; {memory}")


def listing_alone(folder: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, used = time.perf_counter(), time.process_time()
    names = (f"archive/of/photographs/{number * 7 % MILLION:09d}.jpg" for number in range(MILLION))
    write_sorted(names, folder / "million.txt")
    index_listing(folder / "million.txt", folder / "million.bin", 1000, allow_urls=False)
    wall, used = time.perf_counter() - began, time.process_time() - used
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
    report(f"{MILLION} names sorted and indexed", f"{wall:.1f} s ({used:.1f} s used), {grown:.0f} MiB more")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("legenda-scale"))
    parser.add_argument("--sizes", type=int, nargs="*", default=[2_000, 20_000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    folder, work = given.folder.resolve() / ("tiny" if given.tiny else "small"), TINY if given.tiny else SMALL
    images = make_images(folder / "images", work)
    run = make_run(folder / "run", work)
    if not given.tiny:
        listing_alone(folder)
        one_process(run, images)
    for size in given.sizes:
        with_ray(run, images, folder, size, given.workers, work)


if __name__ == "__main__":
    main()
