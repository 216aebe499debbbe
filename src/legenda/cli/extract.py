"""`legenda extract`: pictures to a features file."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from legenda.cli.options import parse


@dataclass(frozen=True)
class Options:
    """Turns pictures into a features file that `legenda train` reads.

    Extractors with a name, of the extra "vision": hf:MODEL, a backbone (DINOv2, CLIP, SigLIP, ViT, ResNet ...: a grid)
    or a DETR (regions) of Hugging Face's hub or in a folder; torchvision:fasterrcnn_resnet50_fpn_v2 and its kin, with
    :FILE for weights of your own; bottom-up:FILE, the Visual Genome detector of the papers with its public weights.

    An extractor of your own is a Python file with one function, extract(images), that gets a list of RGB PIL images
    and returns for each a pair of numpy arrays: features (regions, channels) and boxes (regions, 4) as x1 y1 x2 y2 in
    0..1 of the picture, or None for the boxes. Images are named by their file names without suffix. Broken pictures
    are skipped and listed. Called again after a stop, it goes on where it was.
    """

    pictures: tyro.conf.Positional[tuple[str, ...]]
    """Files, folders or patterns such as "photos/*.jpg"."""
    extractor: str
    """The Python file of an extractor, a name, or "scenes" for pictures of coloured things on a plain ground."""
    out: Path = Path("features.safetensors")
    """The file to write."""
    batch_size: int = 32
    """Pictures that the extractor gets at once."""
    workers: int = 2
    """Threads that read pictures meanwhile."""
    precision: Literal["fp32", "fp16"] = "fp32"
    """Precision of extractors with a name; fp16 is about twice as fast on a GPU."""


def run(arguments: Sequence[str]) -> None:
    """Writes the features file and says how many images it holds."""
    options = parse(Options, arguments, "extract")
    from legenda.cli.progress import progress_bar
    from legenda.extractors import extract_store, find_images, load_extractor

    extractor = load_extractor(options.extractor, precision=options.precision)
    pictures = find_images(options.pictures)
    with progress_bar(f"extracting with {extractor.name}") as show:
        report = extract_store(
            pictures,
            extractor,
            options.out,
            batch_size=options.batch_size,
            workers=options.workers,
            progress=show,
        )
    for path, reason in report.skipped:
        print(f"skipped {path}: {reason}", file=sys.stderr)
    rate = (report.images - report.cached) / max(report.seconds, 1e-9)
    cached = f", {report.cached} done before" if report.cached else ""
    print(
        f"{options.out}: {report.images} images by {extractor.name}{cached}, {rate:.1f} images/s, "
        f"{len(report.skipped)} skipped"
    )
