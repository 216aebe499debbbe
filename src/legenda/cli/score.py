"""`legenda score`: score the captions of a file against the references of another."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import model_validator

from legenda.cli.options import Arguments, Flat, JsonFile, parse
from legenda.config import Config
from legenda.errors import ConfigError
from legenda.io import write_json
from legenda.metrics.evaluation import References, Scores
from legenda.metrics.scoring import AddScores, ScoreOptions, ScoringReport, score_files
from legenda.terminal import create_console, escape_controls


class ScoreCommand(Config):
    """Score captions against references: BLEU, ROUGE-L, CIDEr-D, and METEOR and SPICE where their programs are found.

    Every score has a 95 % interval (bootstrap over images). With --compare-with, two files are compared image by image:
    the difference, its interval (paired bootstrap), and p (approximate randomization). For a file with several captions
    an image, their diversity and the scores of the best captions are reported instead.

    legenda score --download-spice FOLDER downloads the parser that SPICE needs and a JavaScript engine, 387 MB.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "captions.json references.json",
        "captions.json references.json --compare-with others.json",
        "captions.json references.json --metrics fast --out scores.json",
    )
    usual: ClassVar[tuple[str, ...]] = (
        "metrics",
        "compare_with",
        "document_frequencies",
        "only_predicted",
        "split",
        "out",
    )

    score: Annotated[ScoreOptions, Flat, Arguments]
    images: Path | None = None
    """The folder of the images, for CLIPScore and RefCLIPScore; with --clip."""
    clip: str | None = None
    """The CLIP model of these scores, such as openai/clip-vit-base-patch32 or a folder; with --images."""
    out: JsonFile | None = None
    """A JSON file for all results, with the scores of each image."""

    @model_validator(mode="after")
    def _check_clip(self) -> Self:
        if (self.images is None) != (self.clip is None):
            raise ConfigError("--images FOLDER and --clip MODEL go together; name both")
        return self


@dataclass(frozen=True)
class _Download:
    """Download what SPICE needs: Stanford CoreNLP 3.6.0 and the JavaScript engine Rhino."""

    download_spice: Path
    """The folder for its jars."""


def run(arguments: Sequence[str]) -> None:
    """Print the tables and write the JSON file."""
    if any(argument.split("=")[0] == "--download-spice" for argument in arguments):
        from legenda.metrics.spice import JARS_VARIABLE, download_jars

        folder = parse(_Download, arguments, "score").download_spice
        for path in download_jars(folder):
            print(path)
        print(f"export {JARS_VARIABLE}={folder} makes legenda score use it")
        return
    options = parse(ScoreCommand, arguments, "score")
    from legenda.terminal import progress_bar

    with progress_bar(f"scoring {options.score.predictions}"):
        report = score_files(options.score, _clip_scorer(options))
    print_report(report, options.out)


def _clip_scorer(options: ScoreCommand) -> AddScores | None:
    """Return a function that adds CLIPScore and RefCLIPScore, where a model and the folder of images are named."""
    if options.images is None or options.clip is None:
        return None
    from legenda.models.clip import add_clip_scores, find_image_files, load_clip  # late: they import PyTorch

    folder, clip = options.images, load_clip(options.clip)

    def add(scores: Scores[str], captions: Mapping[str, str], references: References) -> Scores[str]:
        return add_clip_scores(scores, captions, references, find_image_files(folder, list(captions)), clip)

    return add


def print_report(report: ScoringReport, out: Path | None) -> None:
    """Print notices and tables, and write the JSON file where one is named."""
    for notice in report.notices:
        print(escape_controls(notice), file=sys.stderr)
    console = create_console(highlight=False, markup=False, soft_wrap=True)
    for table in report.tables:
        console.print(table)
    if out is not None:
        write_json(out, report.results)
        print(f"all results are in {out}")
