"""Time `legenda caption` on a folder of photographs against a plain loop over the same parts.

    python research/benchmarks/caption_folder.py photographs --rounds 5 --out caption_folder.json

Both are whole processes, in turn: images are read, extracted, captioned by beam search and written as text. The plain
loop finishes each batch before it reads the next. CPU seconds are user and system time of the process.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from legenda.io import write_json


@dataclass(frozen=True)
class Options:
    """What to caption, and how often."""

    folder: tyro.conf.Positional[Path]
    model: str = "photo"
    rounds: int = 5
    batch_size: int = 16
    plain: Path | None = None
    """Run the plain loop once and write its captions to this file."""
    out: Path | None = None
    """A JSON file for the results."""


def main() -> None:
    """Run both in turn; print images per second and CPU seconds per image."""
    options = tyro.cli(Options, description=__doc__)
    if options.plain is not None:
        _plain_loop(options, options.plain)
        return
    with tempfile.TemporaryDirectory() as folder:
        captions = [Path(folder) / name for name in ("plain.txt", "caption.txt")]
        shared = [str(options.folder), "--model", options.model, "--batch-size", str(options.batch_size)]
        commands = {
            "plain loop": [sys.executable, __file__, *shared, "--plain", str(captions[0])],
            "legenda caption": [sys.executable, "-m", "legenda", "caption", *shared, "--out", str(captions[1])],
        }
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(options.rounds):
            for name in list(commands)[:: 1 if number % 2 else -1]:
                runs[name].append(_timed(commands[name]))
        plain, command = (path.read_text().splitlines() for path in captions)
    images = len(plain)
    results = []
    for name, times in runs.items():
        wall, cpu = (statistics.median(kind) for kind in zip(*times, strict=True))
        results.append(
            {"name": name, "images": images, "images_per_second": images / wall, "cpu_seconds": cpu / images}
        )
        print(f"{name:<16} {images} images  {images / wall:6.2f} images/s  {1000 * cpu / images:6.1f} ms of CPU each")
    print("equal captions:", sum(map(str.__eq__, plain, command)), "of", images)
    if options.out is not None:
        write_json(options.out, results)


def _timed(command: list[str]) -> tuple[float, float]:
    """Return wall seconds and CPU seconds of a process."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - start, cpu


def _plain_loop(options: Options, out: Path) -> None:
    """Caption the folder's images batch by batch and write them."""
    import legenda
    from legenda.decoding import beam_search
    from legenda.images import find_images, read_image
    from legenda.models.base import inference
    from legenda.regions import Regions

    pipeline = legenda.open(options.model)
    paths, lines = find_images([options.folder]), []
    for start in range(0, len(paths), options.batch_size):
        batch = paths[start : start + options.batch_size]
        images = [read_image(path) for path in batch]
        arrays = pipeline.extractor.extract(images)
        regions = Regions.stack([Regions.from_numpy(*each) for each in arrays]).to(pipeline.model.device)
        with inference(pipeline.model) as model:
            tokens = beam_search(model, regions, beam_size=3).tokens
        captions = [pipeline.vocabulary.decode(row[0]) for row in tokens.tolist()]
        lines += [f"{path}: {caption}" for path, caption in zip(batch, captions, strict=True)]
    out.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
