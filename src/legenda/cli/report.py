"""`legenda report`: one page that compares runs: scores, and predictions with their attention."""

from pathlib import Path
from typing import ClassVar, Self

import tyro
from pydantic import model_validator

from legenda.compute import RunOptions
from legenda.config import Count, NonNegativeInt
from legenda.errors import ConfigError


class ReportOptions(RunOptions):
    """Evaluate one or more runs on a split and write one HTML file that compares them; it opens offline.

    For captioners the page shows scores with 95 % intervals and captions next to the references with the attention of
    each word. All runs must read the same images. The images are
    embedded: scenes are drawn, photographs are searched for next to the annotations; where one is not found, its
    regions are drawn on a blank canvas.

    For other tasks each question, expression or sentence has a card with its reference and the predictions of all runs.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "runs/mine",
        "runs/mine runs/other --split test --out report.html",
    )
    usual: ClassVar[tuple[str, ...]] = ("split", "out", "num_images", "image_folder", "annotations", "features")

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, each evaluated on its training data set; all must have the same images."""
    split: str = "val"
    """The split: train, val, test, or another of the data set, such as testA of RefCOCO."""
    out: Path = Path("report.html")
    """The HTML file to write."""
    num_images: NonNegativeInt = 100
    """The number of examples on the page; of more, those with the best, the worst and the most different scores, and
    some in between."""
    image_folder: Path | None = None
    """The folder of the photographs, if they are neither next to the annotations nor one folder below; with
    --annotations and without --features, the runs' extractors read them, as models of transformers (hf:MODEL) need."""
    annotations: Path | None = None
    """Annotations to use instead of the runs', in any supported layout; required for imported models."""
    features: Path | None = None
    """The features of the images in --annotations."""
    beam_size: Count = 3
    """Hypotheses kept by beam search."""
    overlays: Path | None = None
    """A folder for the attention as PNG too: a sheet for each image and run, one tile for each word."""
    head: NonNegativeInt | None = None
    """The attention head that these sheets show, from 0; by default the mean of all. The page has all heads."""

    @model_validator(mode="after")
    def _check_report(self) -> Self:
        if self.head is not None and self.overlays is None:
            raise ConfigError("--head selects what --overlays FOLDER draws; name the folder too")
        return self


def run(options: ReportOptions) -> None:
    """Write the page and print the scores and where it is."""
    from legenda.evaluation.runs import CaptionerRun, load_run, unique_run_names
    from legenda.report.report import write_caption_report, write_task_report
    from legenda.run_folder import find_seeds

    folders = [run for folder in options.runs for run in find_seeds(folder) or [folder]]
    runs = {name: load_run(folder, options) for name, folder in unique_run_names(folders).items()}
    captioners = {name: opened for name, opened in runs.items() if isinstance(opened, CaptionerRun)}
    if len(captioners) == len(runs):
        print(write_caption_report(captioners, options))
    else:
        print(write_task_report(runs, options))
