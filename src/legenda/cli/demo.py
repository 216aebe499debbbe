"""`legenda demo`: caption photographs, then compare two small models with and without geometry in their attention."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from legenda.cli.options import parse
from legenda.errors import LegendaError

PHOTOGRAPH_MODEL = "photo"
MODELS = ("transformer", "ngsan")


@dataclass(frozen=True)
class Options:
    """Caption four photographs with the packaged model, then train a plain Transformer and NG-SAN on drawn scenes.

    The page `report` has the photographs within seconds and, at the end, also a comparison of the two models. Run
    folders and an image are written below the folder `runs`. Needs no network, about 1 GB of memory and a few minutes
    on two cores; called again, it uses what is already trained.
    """

    runs: Path = Path("runs/demo")
    """Where the run folders go."""
    report: Path = Path("report.html")
    """The page, one file that opens offline."""


def run(arguments: Sequence[str]) -> None:
    """Caption the photographs, train, write the page, and caption one new image."""
    options = parse(Options, arguments, "demo")
    from legenda.report.photographs import write_photograph_report

    photographs, text = write_photograph_report(PHOTOGRAPH_MODEL, options.report)
    print(text, end="\n\n", flush=True)
    folders = {name: options.runs / name for name in MODELS}
    _train(folders)

    from legenda.report.demo import write_demo_report

    print(write_demo_report(folders, options.report, photographs), flush=True)
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
    from legenda.data.scenes import draw_scene, make_scene
    from legenda.io import atomic_write
    from legenda.pipeline import open as open_pipeline

    with atomic_write(path) as partial:
        draw_scene(make_scene("fresh", 0)).save(partial, format="PNG")
    for result in open_pipeline(folder).caption_files([(str(path), path)]):
        print(f"\na new image, {result.image}: {result.error or result.captions[0][0]}")
    script = Path(sys.argv[0])
    program = script if script.name == "legenda" else "python -m legenda"
    print(f"to caption an image (colored things on a plain ground): {program} caption IMAGE.png --model {folder}")
