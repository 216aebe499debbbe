"""`legenda demo`: why geometry-aware attention exists, shown in a page within minutes."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from legenda.cli.options import parse
from legenda.errors import UserError

MODELS = ("transformer", "ngsan")


@dataclass(frozen=True)
class Options:
    """Trains a plain Transformer and NG-SAN on drawn scenes, side by side, and writes a page that compares them.

    Writes run folders and a picture below the folder `runs`, and the page to `report`. Needs no network, about 1 GB of
    memory and a few minutes on two cores; called again, it uses what is trained already.
    """

    runs: Path = Path("runs/demo")
    """Where the run folders go."""
    report: Path = Path("report.html")
    """The page, one file that opens offline."""


def run(arguments: Sequence[str]) -> None:
    """Trains, writes the page, and captions one fresh picture."""
    options = parse(Options, arguments, "demo")
    folders = {name: options.runs / name for name in MODELS}
    _train(folders)

    from legenda.visualization.report.demo import write_demo_report

    print(write_demo_report(folders, options.report), flush=True)
    _caption_fresh_picture(options.runs / "fresh.png", folders["ngsan"])


def _train(folders: dict[str, Path]) -> None:
    """Trains the models at the same time, each in a process of its own on one core."""
    from legenda.cli._parallel import run_parallel
    from legenda.training import is_finished

    work = {}
    for name, folder in folders.items():
        if is_finished(folder, f"scenes.{name}"):
            print(f"{name} is trained already in {folder}", flush=True)
        else:
            work[name] = [["train", f"scenes.{name}", "--out", str(folder)]]
    for name, said in run_parallel(work, [{"OMP_NUM_THREADS": "1"}] * len(folders)).items():
        raise UserError(f"training {name} failed ({said}); mend that and call again")


def _caption_fresh_picture(path: Path, folder: Path) -> None:
    """Draws a scene nobody has seen and captions its file the way a user's own picture is captioned."""
    from legenda.cli.caption import caption_images
    from legenda.datasets.scenes import draw_scene, make_scene
    from legenda.evaluation.runs import load_captioner_run
    from legenda.io import atomic_write

    with atomic_write(path) as partial:
        draw_scene(make_scene("fresh", 0)).save(partial, format="PNG")
    opened = load_captioner_run(folder)
    broken: list[str] = []
    for picture, ((caption, _),) in caption_images([path], opened, opened.extractor(None), 3, broken):
        print(f"\na fresh picture, {picture}: {caption}")
    script = Path(sys.argv[0])
    program = script if script.name == "legenda" else "python -m legenda.cli"
    print(f"your own picture (coloured things on a plain ground): {program} caption PICTURE.png --model {folder}")
