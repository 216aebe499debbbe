"""Human evaluation of captions: collect judgments of pairs, summarize them, correlate metrics with human ratings.

python research/judge/run.py serve runs/aoanet runs/base --images photos/val2014 --out judgments.jsonl
python research/judge/run.py summarize judgments.jsonl
python research/judge/run.py correlate ExpertAnnotations.txt Flickr8k.token.txt
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
import uvicorn
from app import create_judge_app
from correlation import correlate
from judgments import JudgmentFile, choose_pairs, summarize_judgments

from legenda.cli.score import print_report
from legenda.errors import LegendaError
from legenda.evaluation.comparison import find_predictions
from legenda.io import locked
from legenda.metrics.scoring import read_single_predictions
from legenda.report.images import match_photographs

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_NOT_IN_BROWSERS = (".tif", ".tiff")


@dataclass(frozen=True)
class Serve:
    """Let people compare the captions of two models for the same images, blinded, in a page; needs the extra serve.

    As in the human evaluation of AoANet (section 4.5), a judge sees an image with the captions of both, on random
    sides, and chooses the better one or neither. Every judgment is kept at once; called again, judges continue.
    """

    first: tyro.conf.Positional[Path]
    """A run folder with evaluation_SPLIT.json, such a file, or a file of captions as legenda score reads it."""
    second: tyro.conf.Positional[Path]
    """The captions of the other model for the same images."""
    images: Path
    """The folder of the images, there and one folder below; files are named by image id, or end in COCO's number."""
    out: Path
    """The file of the judgments, JSON lines; an existing one of the same captions is continued."""
    split: str = "val"
    """The split whose evaluation_SPLIT.json is read from run folders."""
    num_images: int | None = None
    """The number of images, drawn at random among those found; by default all. The paper has 100."""
    seed: int = 0
    """Seed of the draw."""
    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 admits the whole network."""
    port: int = 8000
    """The port; 0 selects a free one."""


@dataclass(frozen=True)
class Summarize:
    """Summarize the judgments of a file: shares of better, equal and worse, preference, agreement of the judges."""

    judgments: tyro.conf.Positional[Path]
    """A file that serve wrote, whether or not judges are still at work."""
    out: Path | None = None
    """A JSON file for all results."""


@dataclass(frozen=True)
class Correlate:
    """Print the rank correlation of every metric with human ratings of captions.

    Each rating is one observation, and captions that are references of their image do not count.
    """

    ratings: tyro.conf.Positional[Path]
    """Flickr8k's ExpertAnnotations.txt or CrowdFlowerAnnotations.txt, or a .csv or .json table of image_id, caption
    and rating."""
    references: tyro.conf.Positional[Path]
    """Flickr8k.token.txt; or, for a table, COCO's or Karpathy's annotations or {id: [captions]}."""
    metrics: Literal["fast", "auto"] = "auto"
    """fast: metrics without Java; auto: METEOR and SPICE too, where their programs are installed."""
    out: Path | None = None
    """A JSON file for all results."""


Command = (
    Annotated[Serve, tyro.conf.subcommand("serve")]
    | Annotated[Summarize, tyro.conf.subcommand("summarize")]
    | Annotated[Correlate, tyro.conf.subcommand("correlate")]
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the page until the process is stopped; or print the tables and write the JSON file."""
    command = tyro.cli(Command, args=arguments, description=__doc__)  # type: ignore[call-overload]
    if isinstance(command, Serve):
        serve(command)
    elif isinstance(command, Summarize):
        print_report(summarize_judgments(command.judgments), command.out)
    else:
        print_report(correlate(command.ratings, command.references, metrics=command.metrics), command.out)


def serve(options: Serve) -> None:
    """Serve until the process is stopped.

    Raise LegendaError for files that cannot be read, without common images, or of other pairs than `out` holds.
    """
    paths = [find_predictions(name, options.split) for name in (options.first, options.second)]
    first, second = (read_single_predictions(path) for path in paths)
    common = first.keys() & second.keys()
    photographs = match_photographs(common, [options.images])
    images = {image: path for image, path in photographs.items() if path.suffix.lower() not in _NOT_IN_BROWSERS}
    pairs = choose_pairs(first, second, images, options.num_images, options.seed)
    with locked(options.out):
        file = JudgmentFile(options.out, str(paths[0]), str(paths[1]), pairs)
        identical = sum(pair.identical for pair in pairs)
        print(
            f"{len(pairs) - identical} pairs of captions, {identical} more have identical captions; "
            f"{len(images)} of {len(common)} images found",
            flush=True,
        )
        hosts = _LOOPBACK if options.host in _LOOPBACK else ("*",)
        app = create_judge_app(file, [images[pair.image] for pair in pairs], hosts)
        uvicorn.run(app, host=options.host, port=options.port, access_log=False)


if __name__ == "__main__":
    try:
        main()
    except LegendaError as error:
        print(f"run.py: {error}", file=sys.stderr)
        raise SystemExit(2) from None
