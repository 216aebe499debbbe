"""`legenda extract`: pictures to a features file."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from legenda.apps.options import parse


@dataclass(frozen=True)
class Options:
    """Turns pictures into a features file that `legenda train` reads.

    An extractor of your own is a Python file with one function, extract(pictures), that gets a list of RGB PIL images
    and returns for each a pair of numpy arrays: features (regions, channels) and boxes (regions, 4) as x1 y1 x2 y2 in
    0..1 of the picture, or None for the boxes. Images are named by their file names without suffix. Broken pictures
    are skipped and listed.
    """

    pictures: tyro.conf.Positional[tuple[str, ...]]
    """Files, folders or patterns such as "photos/*.jpg"."""
    extractor: Annotated[str, tyro.conf.arg(name="with")]
    """The Python file of an extractor, or "scenes" for pictures of coloured things on a plain ground."""
    out: Path = Path("features.safetensors")
    """The file to write."""
    batch_size: int = 32
    """Pictures that the extractor gets at once."""


def run(arguments: Sequence[str]) -> None:
    """Writes the features file and says how many images it holds."""
    options = parse(Options, arguments, "extract")
    from legenda.apps.runs import BUILTIN
    from legenda.vision import extract_store, find_pictures, load_extractor

    extractor = load_extractor(options.extractor, builtin=BUILTIN)
    pictures = find_pictures(options.pictures)
    report = extract_store(pictures, extractor, options.out, batch_size=options.batch_size, progress=_count)
    for path, reason in report.skipped:
        print(f"skipped {path}: {reason}", file=sys.stderr)
    rate = report.images / max(report.seconds, 1e-9)
    print(
        f"{options.out}: {report.images} images by {extractor.name}, {rate:.1f} images/s, {len(report.skipped)} skipped"
    )


def _count(done: int, total: int) -> None:
    """Counts on the standard error: in place on a terminal, a line per batch elsewhere."""
    live = sys.stderr.isatty() and done < total
    print(f"\r{done}/{total} pictures", end="" if live else "\n", file=sys.stderr, flush=True)
