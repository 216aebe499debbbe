"""`legenda caption`: captions for a user's own pictures."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from legenda.apps.options import parse
from legenda.errors import UserError

if TYPE_CHECKING:
    from legenda.apps.runs import OpenRun
    from legenda.vision import Extractor


@dataclass(frozen=True)
class Options:
    """Captions pictures with a trained model: one line each, file and caption.

    Pictures that cannot be read are named on the standard error and skipped; the exit code is then 2.
    """

    pictures: tyro.conf.Positional[tuple[str, ...]]
    """Files, folders or patterns such as "photos/*.jpg"."""
    model: Path
    """A run folder."""
    extractor: Annotated[str | None, tyro.conf.arg(name="with")] = None
    """The Python file of the extractor the model was trained with; not needed where it is built in, as for scenes."""
    beam_size: int = 3
    """Hypotheses that the search keeps."""


def run(arguments: Sequence[str]) -> None:
    """Prints captions to the standard output."""
    options = parse(Options, arguments, "caption")
    from legenda.apps.runs import open_run
    from legenda.vision import find_pictures

    pictures = find_pictures(options.pictures)
    opened = open_run(options.model)
    extractor = opened.extractor(options.extractor)
    broken: list[str] = []
    for path, caption in caption_pictures(pictures, opened, extractor, options.beam_size, broken):
        print(f"{path}: {caption}", flush=True)
    if len(pictures) == len(broken) == 1:
        raise UserError(broken[0])
    for reason in broken:
        print(reason, file=sys.stderr)
    if broken:
        raise UserError(f"{len(broken)} of {len(pictures)} pictures were skipped; mend or leave out those named above")


def caption_pictures(
    pictures: Sequence[Path], opened: "OpenRun", extractor: "Extractor", beam_size: int, broken: list[str]
) -> Iterator[tuple[Path, str]]:
    """Captions of the pictures that can be read, in order; why the others cannot is added to `broken`."""
    import torch

    from legenda.regions import Regions
    from legenda.vision import read_picture, run_extractor

    for path in pictures:
        try:
            ((features, boxes),) = run_extractor(extractor, [read_picture(path)], [path])
        except UserError as error:
            broken.append(str(error) if str(path) in str(error) else f"{path}: {error}")
            continue
        regions = Regions(
            torch.from_numpy(features).float().unsqueeze(0),
            None if boxes is None else torch.from_numpy(boxes).float().unsqueeze(0),
        )
        yield path, opened.model.caption(regions, beam_size=beam_size)[0]
