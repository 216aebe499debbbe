"""`legenda extract`: features of images or videos, in one file or in the shards of a job."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from legenda.cli._extract_options import ExtractOptions
from legenda.cli.options import parse
from legenda.errors import import_extra
from legenda.terminal import escape_controls

if TYPE_CHECKING:
    from legenda.extractors import FrameSampling


def run(arguments: Sequence[str]) -> None:
    """Write the features and print how many images there are."""
    options = parse(ExtractOptions, arguments, "extract")
    from legenda.extractors import FrameSampling

    sampling = None
    if options.num_frames is not None or options.frame_rate is not None:
        sampling = FrameSampling(options.num_frames, options.frame_rate)
        import_extra("av", "video")
    if options.engine == "ray":
        from legenda.cli._extract_ray import extract_with_ray

        return extract_with_ray(options, sampling)
    return _extract(options, sampling)


def _extract(options: ExtractOptions, sampling: "FrameSampling | None") -> None:
    """Write one file, with a process for each device where there are several."""
    from legenda.extractors import ExtractorProcesses, extract_store, find_images, load_extractor
    from legenda.io import locked
    from legenda.terminal import progress_bar

    out, computes = options.out or Path("features.safetensors"), options.computes()
    medium = "image" if sampling is None else "video"
    images = find_images(options.images, medium)
    if len(computes) > 1:
        opened = ExtractorProcesses(options.extractor, computes, options.num_regions)
    else:
        opened = nullcontext(load_extractor(options.extractor, computes[0], options.num_regions))
    with opened as extractor, locked(out), progress_bar(f"extracting with {extractor.name}") as update:
        report = extract_store(
            images,
            extractor,
            out,
            sampling=sampling,
            batch_size=options.batch_size,
            workers=options.workers,
            progress=update,
        )
    for path, reason in report.skipped:
        print(escape_controls(f"skipped {path}: {reason}"), file=sys.stderr)
    rate = (report.images - report.cached) / max(report.seconds, 1e-9)
    cached = f", {report.cached} of them by earlier calls" if report.cached else ""
    print(
        f"{out}: {report.images} {medium}s by {extractor.name}{cached}, {rate:.1f} {medium}s/s, "
        f"{len(report.skipped)} skipped"
    )
