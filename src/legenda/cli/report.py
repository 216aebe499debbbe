"""`legenda report`: one page that compares runs: scores, and predictions with their attention."""

import sys
from itertools import chain, count
from pathlib import Path
from typing import Annotated, ClassVar

import tyro
from pydantic import Field

from legenda.cli.options import Flat, Search
from legenda.compute import RunOptions
from legenda.config import Config
from legenda.errors import ConfigError
from legenda.io import check_writable
from legenda.report.page import ReportOptions
from legenda.terminal import escape_controls


class ReportCommand(Config):
    """Evaluate one or more runs on a split and write one HTML file that compares them; it opens offline.

    For captioners the page shows scores with 95 % intervals and captions next to the references with the attention of
    each word. All runs must read the same images. The images are embedded: scenes are drawn, photographs are searched
    for next to the annotations; where one is not found, its regions are drawn on a blank canvas.

    Files of captions, as legenda score reads them, are compared without their models and without PyTorch, next to the
    references of --annotations, or of the data that an evaluation_SPLIT.json names.

    For other tasks each question, expression or sentence has a card with its reference and the predictions of all runs.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "runs/mine",
        "runs/mine runs/other --split test --out report.html",
        "captions.json others.json --annotations references.json --images photos",
    )
    usual: ClassVar[tuple[str, ...]] = ("split", "out", "num_images", "images", "annotations", "features")

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, each evaluated on its training data set, or files of captions; all must have the same images."""
    report: Annotated[ReportOptions, Flat] = ReportOptions()
    search: Search = Field(default_factory=dict)
    compute: Annotated[RunOptions, Flat] = RunOptions()


def _new_name() -> Path:
    """Return the name of a report that does not exist yet."""
    names = chain(["report.html"], (f"report-{number}.html" for number in count(2)))
    path = next(path for path in map(Path, names) if not path.exists())
    check_writable(path)
    return path


def run(options: ReportCommand) -> None:
    """Write the page and print the scores and where it is."""
    out = options.report.out or _new_name()
    existed = out.exists()
    print(_write(options, out))
    if existed:
        print(f"{escape_controls(out)} replaces the file that was there", file=sys.stderr)


def _write(options: ReportCommand, out: Path) -> str:
    """Write the page of runs, or of files of captions, and return its summary."""
    names, report, search = options.runs, options.report.replace(out=out), options.search
    if all(path.is_file() for path in names):
        from legenda.report.predictions import write_prediction_report

        of_runs = [name for name in ("features", "overlays", "head") if getattr(report, name) is not None]
        if refused := [*of_runs, *search]:
            option = refused[0].replace("_", "-")
            raise ConfigError(f"--{option} is for runs, and {names[0]} is a file of captions; leave it out")
        settings = report.model_dump(include={"annotations", "images", "num_images"})
        return write_prediction_report(names, out, **settings)
    files = [path for path in names if path.is_file()]
    if files:
        run = next(path for path in names if path not in files)
        raise ConfigError(f"{files[0]} is a file of captions and {run} is none; report files, or runs")
    from legenda.evaluation.runs import CaptionerRun, load_run
    from legenda.hub import unique_run_names
    from legenda.report.report import write_caption_report, write_task_report
    from legenda.run_folder import find_seeds

    folders = [run for folder in names for run in find_seeds(folder) or [folder]]
    runs = {name: load_run(folder, options.compute) for name, folder in unique_run_names(folders).items()}
    captioners = {name: opened for name, opened in runs.items() if isinstance(opened, CaptionerRun)}
    if len(captioners) == len(runs):
        return write_caption_report(captioners, report, search, names)
    return write_task_report(runs, report, search, names)
