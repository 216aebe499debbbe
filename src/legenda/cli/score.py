"""`legenda score`: score the captions of a file against the references of another."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from legenda.cli.options import parse
from legenda.config import Config, NonNegativeInt, PositiveInt
from legenda.io import write_json
from legenda.metrics.scoring import ScoringReport, score_files
from legenda.terminal import create_console, escape_controls


class ScoreOptions(Config):
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

    predictions: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="PREDICTIONS")]]
    """COCO results (a list of image_id and caption), {id: caption}, {id: [captions]}, an evaluation_SPLIT.json, or what
    legenda caption writes; images are found by id, by file name or by COCO's number."""
    references: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="REFERENCES")]]
    """COCO's or Karpathy's annotations, {id: [captions]}, a table, Flickr's own files, or a folder of images with text
    files beside them, perhaps gzipped; those of nocaps are scored in, near and out of domain too, each with document
    frequencies of its own."""
    split: Literal["train", "val", "test"] | None = None
    """Use only the references of this split, in Karpathy's layout."""
    file_column: str | None = None
    """The column of a table of references that names the image, where it is not file, image, path or the like."""
    caption_column: str | None = None
    """The column of a table of references that holds captions, where it is not caption, text or the like."""
    only_predicted: bool = False
    """Leave out references of images without a prediction; otherwise every image must have one."""
    only_referenced: bool = False
    """Leave out predictions of images without references."""
    references_per_image: PositiveInt | None = None
    """Use at most this many references of each image, the first ones; COCO's c5 has 5."""
    c40: Path | None = None
    """COCO's second set of references, 40 an image for some of the images; scored in a table of its own."""
    metrics: tuple[str, ...] = ("auto",)
    """Names such as BLEU ROUGE-L CIDEr-D CIDEr METEOR SPICE; auto is all but CIDEr, fast those of auto without Java."""
    document_frequencies: Path | None = None
    """References to count CIDEr-D's document frequencies in, such as captions_val2014.json; default: those scored."""
    compare_with: Path | None = None
    """A second file of predictions for the same images, to compare with."""
    train_captions: Path | None = None
    """Training references, to report the share of captions that are not among them."""
    images: Path | None = None
    """The folder of the images, for CLIPScore and RefCLIPScore; with --clip."""
    clip: str | None = None
    """The CLIP model of these scores, such as openai/clip-vit-base-patch32 or a folder; with --images."""
    resamples: PositiveInt = 1000
    """Number of draws of the bootstrap and of rounds of the randomization."""
    seed: NonNegativeInt = 0
    """Seed of the resampling."""
    spice_jars: Path | None = None
    """The folder of SPICE's jars; default: the environment variable LEGENDA_SPICE_JARS."""
    out: Path | None = None
    """A JSON file for all results, with the scores of each image."""


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
    options = parse(ScoreOptions, arguments, "score")
    from legenda.terminal import progress_bar

    with progress_bar(f"scoring {options.predictions}"):
        report = score_files(options)
    print_report(report, options.out)


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
