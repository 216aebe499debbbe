"""`legenda demo`: compare two small models, with and without geometry in their attention, within minutes."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from legenda.cli.options import parse
from legenda.errors import LegendaError

MODELS = ("transformer", "ngsan")


@dataclass(frozen=True)
class Options:
    """Train a plain Transformer and NG-SAN on drawn scenes, in parallel, and write a page that compares them.

    Writes run folders and an image below the folder `runs`, and the page to `report`. Needs no network, about 1 GB of
    memory and a few minutes on two cores; called again, it uses what is already trained.
    """

    runs: Path = Path("runs/demo")
    """Where the run folders go."""
    report: Path = Path("report.html")
    """The page, one file that opens offline."""


def run(arguments: Sequence[str]) -> None:
    """Train, write the page, and caption one new image."""
    options = parse(Options, arguments, "demo")
    folders = {name: options.runs / name for name in MODELS}
    _train(folders)

    from legenda.visualization.report.demo import write_demo_report

    print(write_demo_report(folders, options.report), flush=True)
    _caption_new_image(options.runs / "fresh.png", folders["ngsan"])


def _train(folders: Mapping[str, Path]) -> None:
    """Train the models at the same time, each in a process on one core."""
    from legenda.cli._parallel import run_parallel
    from legenda.training import is_finished

    jobs = {}
    for name, folder in folders.items():
        if is_finished(folder, f"scenes.{name}"):
            print(f"{name} is already trained in {folder}", flush=True)
        else:
            jobs[name] = [["train", f"scenes.{name}", "--out", str(folder)]]
    for name, reason in run_parallel(jobs, [{"OMP_NUM_THREADS": "1"}] * len(folders)).items():
        raise LegendaError(f"training {name} failed ({reason}); remove the cause and call again")


def _caption_new_image(path: Path, folder: Path) -> None:
    """Draw a scene that is in no split, and caption its file as `legenda caption` does."""
    from legenda.datasets.scenes import draw_scene, make_scene
    from legenda.io import atomic_write
    from legenda.pipeline import open as open_pipeline

    with atomic_write(path) as partial:
        draw_scene(make_scene("fresh", 0)).save(partial, format="PNG")
    for result in open_pipeline(folder).caption_files([(str(path), path)]):
        print(f"\na new image, {result.image}: {result.error or result.captions[0][0]}")
    script = Path(sys.argv[0])
    program = script if script.name == "legenda" else "python -m legenda"
    print(f"to caption an image (colored things on a plain ground): {program} caption IMAGE.png --model {folder}")
