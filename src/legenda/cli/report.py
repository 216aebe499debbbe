"""`legenda report`: one page that compares runs: scores, and predictions with their attention."""

from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from legenda.cli.options import Flat
from legenda.compute import RunOptions
from legenda.config import Config
from legenda.errors import ConfigError
from legenda.report.page import ReportOptions


class ReportCommand(Config):
    """Evaluate one or more runs on a split and write one HTML file that compares them; it opens offline.

    For captioners the page shows scores with 95 % intervals and captions next to the references with the attention of
    each word. All runs must read the same images. The images are
    embedded: scenes are drawn, photographs are searched for next to the annotations; where one is not found, its
    regions are drawn on a blank canvas.

    Files of captions, as legenda score reads them, are compared without their models and without PyTorch, next to the
    references of --annotations, or of the data that an evaluation_SPLIT.json names.

    For other tasks each question, expression or sentence has a card with its reference and the predictions of all runs.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "runs/mine",
        "runs/mine runs/other --split test --out report.html",
        "captions.json others.json --annotations references.json --image-folder photos",
    )
    usual: ClassVar[tuple[str, ...]] = ("split", "out", "num_images", "image_folder", "annotations", "features")

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, each evaluated on its training data set, or files of captions; all must have the same images."""
    report: Annotated[ReportOptions, Flat] = ReportOptions()
    compute: Annotated[RunOptions, Flat] = RunOptions()


def run(options: ReportCommand) -> None:
    """Write the page and print the scores and where it is."""
    if all(path.is_file() for path in options.runs):
        from legenda.report.predictions import write_prediction_report

        for name in ("features", "overlays", "head"):
            if getattr(options.report, name) is not None:
                raise ConfigError(f"--{name} is for runs, and {options.runs[0]} is a file of captions; leave it out")
        given = options.report.model_dump(include={"annotations", "image_folder", "num_images"})
        print(write_prediction_report(options.runs, options.report.out, **given))
        return
    files = [path for path in options.runs if path.is_file()]
    if files:
        run = next(path for path in options.runs if path not in files)
        raise ConfigError(f"{files[0]} is a file of captions and {run} is none; report files, or runs")
    from legenda.evaluation.runs import CaptionerRun, load_run, unique_run_names
    from legenda.report.report import write_caption_report, write_task_report
    from legenda.run_folder import find_seeds

    folders = [run for folder in options.runs for run in find_seeds(folder) or [folder]]
    runs = {name: load_run(folder, options.compute) for name, folder in unique_run_names(folders).items()}
    captioners = {name: opened for name, opened in runs.items() if isinstance(opened, CaptionerRun)}
    if len(captioners) == len(runs):
        print(write_caption_report(captioners, options.report, options.runs))
    else:
        print(write_task_report(runs, options.report, options.runs))
