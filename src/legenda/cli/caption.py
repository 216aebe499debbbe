"""`legenda caption`: captions of image files."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from legenda.cli._caption_options import CaptionOptions
from legenda.cli.options import parse
from legenda.errors import DataError
from legenda.evaluation.caption_formats import ImageCaptions, format_captions
from legenda.io import check_output, write_text
from legenda.terminal import escape_controls

if TYPE_CHECKING:
    from legenda.pipeline import BatchCallback, Pipeline


def run(arguments: Sequence[str]) -> None:
    """Print captions, or write them to a file; raise DataError at the end where images were skipped."""
    options = parse(CaptionOptions, arguments, "caption")
    if options.engine == "ray":
        from legenda.cli._caption_ray import caption_with_ray

        return caption_with_ray(options)
    from legenda.extractors.sources import open_image_sources
    from legenda.pipeline import open as open_pipeline
    from legenda.terminal import progress_bar

    errors: list[str] = []
    with open_image_sources(options.images, errors, allow_urls=options.allow_urls) as files:
        total = len(files) + len(errors)
        check_output(options.out, [path for _, path in files])
        flags = options.values_of("compile", "ignore_extractor_mismatch", "allow_download")
        pipeline = open_pipeline(options.model, options.extractor, options.device, options.precision, **flags)
        with progress_bar("captioning images") as update:
            results = pipeline.caption_files(
                files,
                options.select(),
                num_captions=options.num_captions,
                batch_size=options.batch_size,
                progress=update,
                callback=_attention_sheets(options, pipeline),
            )
            lines = format_captions(_without_errors(results, errors), options.output_format)
            if options.out is None:
                for line in lines:
                    print(line, flush=True)
            else:
                content = "\n".join([*lines, ""])
                if len(errors) < total:
                    write_text(options.out, content)
    _report(errors, total, "" if options.out is None or len(errors) < total else f"; {options.out} was not written")


def _attention_sheets(options: CaptionOptions, pipeline: "Pipeline") -> "BatchCallback | None":
    if options.save_attention is None:
        return None
    from legenda.report.overlay import AttentionSheets

    return AttentionSheets(options.save_attention, pipeline.vocabulary, options.head)


def _without_errors(results: Iterable[ImageCaptions], errors: list[str]) -> Iterator[ImageCaptions]:
    """Yield the captioned images; append the errors of the others to `errors`."""
    for result in results:
        if result.error is None:
            yield result
        else:
            errors.append(result.error)


def _report(errors: Sequence[str], total: int, note: str) -> None:
    if len(errors) == total == 1:
        raise DataError(f"{errors[0]}{note}")
    if errors:
        print("\n".join(map(escape_controls, errors)), file=sys.stderr)
        raise DataError(
            f"{len(errors)} of {total} images were skipped; repair or leave out the images named above{note}"
        )
