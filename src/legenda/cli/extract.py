"""`legenda extract`: a features file from images."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import tyro

from legenda.cli.options import parse
from legenda.compute import ComputeOptions
from legenda.config import PositiveInt
from legenda.terminal import escape_controls


@dataclass(frozen=True)
class Options(ComputeOptions):
    """Extract features of images into a file that `legenda train` reads.

    Named extractors, of the extra "vision": hf:MODEL, a backbone (DINOv2, CLIP, SigLIP, ViT, ResNet ...: a grid)
    or a DETR (regions) of Hugging Face's hub or in a folder; torchvision:fasterrcnn_resnet50_fpn_v2 and the other
    detectors of torchvision, torchvision:resnext101_32x8d and its other ResNets (a grid of 7 x 7 cells), with :FILE for
    other weights; bottom-up:FILE, the Visual Genome detector of the papers with its public weights.

    A user-defined extractor is a Python file with one function, extract(images), that gets a list of RGB PIL images and
    returns for each a pair of NumPy arrays: features (regions, channels) and boxes (regions, 4) as x1 y1 x2 y2 relative
    to the image, in 0..1, or None for the boxes. Image ids are file names without suffix. Images that cannot be read
    are skipped and listed. Called again after a stop, it resumes.
    """

    section: ClassVar[str] = "--"

    images: tyro.conf.Positional[tuple[str, ...]]
    """Files, folders or patterns such as "photos/*.jpg"."""
    extractor: str
    """The Python file of an extractor, a name, or "scenes" for images of colored things on a plain ground."""
    out: Path = Path("features.safetensors")
    """The file to write."""
    num_regions: PositiveInt | None = None
    """A fixed number of regions of each image, such as 36, for detectors; by default 10 to 100, as they are sure."""
    batch_size: PositiveInt = 32
    """Images of a batch."""
    workers: PositiveInt = 2
    """Threads that read images in advance."""


def run(arguments: Sequence[str]) -> None:
    """Write the features file and print how many images it holds."""
    options = parse(Options, arguments, "extract")
    from legenda.cli.progress import progress_bar
    from legenda.extractors import extract_store, find_images, load_extractor
    from legenda.locks import locked

    extractor = load_extractor(options.extractor, options, options.num_regions)
    images = find_images(options.images)
    with locked(options.out), progress_bar(f"extracting with {extractor.name}") as update:
        report = extract_store(
            images,
            extractor,
            options.out,
            batch_size=options.batch_size,
            workers=options.workers,
            progress=update,
        )
    for path, reason in report.skipped:
        print(escape_controls(f"skipped {path}: {reason}"), file=sys.stderr)
    rate = (report.images - report.cached) / max(report.seconds, 1e-9)
    cached = f", {report.cached} of them by earlier calls" if report.cached else ""
    print(
        f"{options.out}: {report.images} images by {extractor.name}{cached}, {rate:.1f} images/s, "
        f"{len(report.skipped)} skipped"
    )
