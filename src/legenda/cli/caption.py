"""`legenda caption`: captions for a user's own pictures."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from legenda.cli.options import parse
from legenda.errors import UserError
from legenda.evaluation.caption_formats import Captioned, Form, write_captions
from legenda.io import write_text

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    from legenda.evaluation.runs import CaptionerRun
    from legenda.extractors import Extractor
    from legenda.visualization.caption_attention import CaptionAttention

    CaptionCallback = Callable[[Path, Image.Image, list[CaptionAttention]], None]


@dataclass(frozen=True)
class Options:
    """Captions pictures with a trained model: one line each, file and caption.

    Pictures that cannot be read are named on the standard error and skipped; the exit code is then 2.
    """

    pictures: tyro.conf.Positional[tuple[str, ...]]
    """Files, folders, patterns such as "photos/*.jpg", or - for a list of them on the standard input."""
    model: Path
    """A run folder."""
    extractor: str | None = None
    """The extractor the model was trained with, a Python file or a name as for legenda extract; not needed where the
    run knows how to have it, as for scenes and models of Hugging Face's hub."""
    beam_size: int = 3
    """Hypotheses that the search keeps."""
    captions: int = 1
    """Captions of each picture, best first with their scores; at most the beam size."""
    form: Annotated[Form, tyro.conf.arg(name="format")] = "text"
    """text; json; csv; or coco, the list of image_id and caption that COCO's server takes."""
    out: Path | None = None
    """A file for the captions instead of the standard output."""
    batch_size: int = 16
    """Pictures that are captioned at once."""
    allow_urls: bool = False
    """Fetch pictures that are named by http and https."""
    attention: Path | None = None
    """A folder for where each word looked: a PNG for each picture, one tile a word."""
    head: int | None = None
    """The head of the attention that is drawn, from 0; without it the mean of all."""
    engine: Literal["local", "ray"] = "local"
    """ray captions any number of pictures with many processes into shards of JSON lines in the folder --out; what is
    there is not done again. @names.txt then names a listing of pictures; see docs/guides/large-scale.md."""
    workers: int = 2
    """Processes that caption, with --engine ray."""
    shard_size: int = 1000
    """Pictures of a shard, with --engine ray."""


def run(arguments: Sequence[str]) -> None:
    """Prints captions to the standard output, or writes them to a file."""
    options = parse(Options, arguments, "caption")
    if not 1 <= options.captions <= options.beam_size:
        raise UserError(f"--captions is {options.captions}; it must lie between 1 and --beam-size {options.beam_size}")
    if options.form == "coco" and options.captions > 1:
        raise UserError("COCO's form has one caption a picture; leave out --captions or use --format json")
    if options.batch_size < 1:
        raise UserError(f"--batch-size is {options.batch_size}; give at least 1")
    if options.head is not None and options.attention is None:
        raise UserError("--head chooses what --attention FOLDER draws; name the folder too")
    if options.engine == "ray":
        from legenda.scale.ray_engine import caption_with_ray

        caption_with_ray(options)
        return
    from legenda.cli.progress import progress_bar
    from legenda.evaluation.runs import load_captioner_run
    from legenda.extractors.image_sources import open_image_sources

    broken: list[str] = []
    with open_image_sources(options.pictures, broken, allow_urls=options.allow_urls) as sources:
        total = len(sources) + len(broken)
        opened = load_captioner_run(options.model)
        extractor = opened.extractor(options.extractor)
        names = {path: name for name, path in sources}
        with progress_bar("captioning pictures") as show:
            found = caption_images(
                [path for _, path in sources],
                opened,
                extractor,
                options.beam_size,
                broken,
                captions=options.captions,
                batch_size=options.batch_size,
                progress=show,
                heard=None if options.attention is None else _draw_into(options.attention, names, options.head),
            )
            lines = write_captions((Captioned(names[path], told) for path, told in found), options.form)
            if options.out is None:
                for line in lines:
                    print(line, flush=True)
            else:
                told = list(lines)
                if len(broken) < total:  # else what an earlier call wrote there is worth more
                    write_text(options.out, "\n".join([*told, ""]))
    kept = f"; nothing was written to {options.out}" if options.out is not None and total == len(broken) else ""
    if total == len(broken) == 1:
        raise UserError(f"{broken[0]}{kept}")
    for reason in broken:
        print(reason, file=sys.stderr)
    if broken:
        raise UserError(f"{len(broken)} of {total} pictures were skipped; mend or leave out those named above{kept}")


def caption_images(
    pictures: Sequence[Path],
    opened: "CaptionerRun",
    extractor: "Extractor",
    beam_size: int,
    broken: list[str],
    *,
    captions: int = 1,
    batch_size: int = 16,
    progress: Callable[[int, int], None] | None = None,
    heard: "CaptionCallback | None" = None,
) -> Iterator[tuple[Path, tuple[tuple[str, float], ...]]]:
    """The best captions of the pictures that can be read, in order, each with its score.

    Why the others cannot is added to `broken`; a picture on which the extractor fails does not spoil its batch.
    heard: called with each picture's path, its pixels and its captions with where their words looked.
    """
    import torch

    from legenda.decoding import beam_search
    from legenda.regions import Regions
    from legenda.visualization.caption_attention import extract_attention

    model, vocabulary = opened.model.eval(), opened.model.vocabulary
    assert vocabulary is not None  # every run has one
    for first in range(0, len(pictures), batch_size):
        batch = pictures[first : first + batch_size]
        regions = list(_extract(batch, extractor, broken))
        if regions:
            device = next(model.parameters()).device
            batched = Regions.stack([Regions.from_numpy(features, boxes) for _, _, features, boxes in regions])
            stacked = batched.to(device)
            with torch.inference_mode():
                found = beam_search(
                    model, stacked, beam_size=beam_size, num_return_sequences=captions, need_attention=heard is not None
                )
            for row, (path, picture, _, _) in enumerate(regions):
                if heard is not None:
                    heard(path, picture, extract_attention(found, stacked, vocabulary, row))
                rows, scores = found.tokens[row].tolist(), found.scores[row].tolist()
                told = zip(rows, scores, strict=True)
                yield path, tuple((vocabulary.decode(row), score) for row, score in told if score > float("-inf"))
        if progress is not None:
            progress(first + len(batch), len(pictures))


def _extract(
    batch: Sequence[Path], extractor: "Extractor", broken: list[str]
) -> "Iterator[tuple[Path, Image.Image, np.ndarray, np.ndarray | None]]":
    """The regions of the pictures that have some; where a batch fails, each picture alone."""
    from legenda.extractors import read_image, run_extractor

    readable: list[tuple[Path, Image.Image]] = []
    for path in batch:
        try:
            readable.append((path, read_image(path)))
        except UserError as error:
            broken.append(str(error))
    if not readable:
        return
    if len(readable) > 1:
        with suppress(UserError):
            given = run_extractor(extractor, [picture for _, picture in readable], [path for path, _ in readable])
            yield from [(*source, *regions) for source, regions in zip(readable, given, strict=True)]
            return
    for path, picture in readable:
        try:
            ((features, boxes),) = run_extractor(extractor, [picture], [path])
        except UserError as error:
            broken.append(str(error) if str(path) in str(error) else f"{path}: {error}")
        else:
            yield path, picture, features, boxes


def _draw_into(folder: Path, names: Mapping[Path, str], head: int | None) -> "CaptionCallback":
    """Draws what it hears into the folder; the sheet of a.jpg is a.jpg.png, that of another a.jpg is a.jpg.2.png."""
    from legenda.visualization.caption_attention import draw_caption_attention, safe_file_name, write_sheet

    taken: Counter[str] = Counter()

    def draw(path: Path, picture: "Image.Image", captions: "list[CaptionAttention]") -> None:
        sheet = draw_caption_attention(picture, captions, title=names[path], head=head)
        name = safe_file_name(path.name)
        taken[name] += 1
        write_sheet(sheet, folder, name if taken[name] == 1 else f"{name}.{taken[name]}")

    return draw
