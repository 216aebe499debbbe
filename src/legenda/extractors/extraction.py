"""Many pictures to one feature store: read ahead by several workers, kept in pieces, gone on with after a stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from legenda.errors import UserError
from legenda.extractors.base import run_extractor
from legenda.extractors.images import read_image
from legenda.extractors.registry import Extractor
from legenda.extractors.resume import Image as Stored
from legenda.extractors.resume import Parts
from legenda.features.validate import as_floats, validate_values
from legenda.features.writer import write_store

_PIECE = 1_024
"""Pictures after which what is done is kept on disk."""


@dataclass(frozen=True)
class ExtractionReport:
    """What an extraction did.

    images: how many the store holds; kept: those of them that an earlier, stopped call had done; skipped: pictures that
    cannot be read, with the reason; seconds: the time taken.
    """

    images: int
    skipped: tuple[tuple[Path, str], ...]
    seconds: float
    kept: int = 0


def extract_store(
    pictures: Sequence[str | Path],
    extractor: Extractor,
    out: str | Path,
    *,
    batch_size: int = 32,
    workers: int = 2,
    piece: int = _PIECE,
    progress: Callable[[int, int], None] | None = None,
) -> ExtractionReport:
    """Runs the extractor over all pictures and writes the feature store `out`, in the order given.

    An image's id is its file name without suffix. Pictures that cannot be read are left out and listed in the report.
    workers: threads that read pictures while the extractor is at work on those before.
    piece: after so many pictures what is done is kept in a hidden folder beside `out`; called again after a stop, with
    more or fewer pictures even, only those are extracted that are not there or have changed. The folder is removed when
    the store is whole, which for a moment needs the room of both.
    progress: called after each batch with the number of pictures done and of all.
    Raises UserError when two pictures share an id, when no picture can be read, or when the extractor fails or gives
    something else than regions; `out` is not written then.
    """
    out = Path(out)
    for name, value in (("batch_size", batch_size), ("workers", workers), ("piece", piece)):
        if value < 1:
            raise UserError(f"{name} is {value}; give at least 1")
    if out.is_dir():
        raise UserError(f"{out} is a folder; name the feature file to write")
    paths = [Path(picture) for picture in pictures]
    _check_ids(paths)
    began = time.monotonic()
    parts = Parts(out, extractor.name)
    todo = [path for path in paths if path not in parts]
    kept = done = len(paths) - len(todo)
    skipped: list[tuple[Path, str]] = []
    fresh: list[tuple[Path, Stored]] = []
    like = parts.like
    for batch in _read_ahead(todo, batch_size, workers):
        readable = [(path, picture) for path, picture in batch if isinstance(picture, Image.Image)]
        skipped += [(path, picture) for path, picture in batch if isinstance(picture, str)]
        if readable:
            given = run_extractor(extractor, [picture for _, picture in readable], [path for path, _ in readable])
            for (path, _), (features, boxes) in zip(readable, given, strict=True):
                like = like or (features.shape[1], boxes is not None)
                _check_like(out, extractor, path, features, boxes, like)
                fresh.append((path, (path.stem, features, boxes)))
        done += len(batch)
        if len(fresh) >= piece:
            parts.add([image for _, image in fresh], [path for path, _ in fresh])
            fresh.clear()
        if progress is not None:
            progress(done, len(paths))
    if len(skipped) == len(paths):
        reason = f"; the first: {skipped[0][1]}" if skipped else ""
        raise UserError(f"{out} is not written: none of the {len(paths)} pictures can be read{reason}")
    latest = {image[0]: image for _, image in fresh}
    unread = {path for path, _ in skipped}
    order = [path.stem for path in paths if path not in unread]
    write_store(out, (latest[name] if name in latest else parts.read(name) for name in order), extractor=extractor.name)
    parts.remove()
    return ExtractionReport(len(order), tuple(skipped), time.monotonic() - began, kept)


def _check_ids(pictures: Sequence[Path]) -> None:
    seen: dict[str, Path] = {}
    for path in pictures:
        if path.stem in seen:
            raise UserError(f"{seen[path.stem]} and {path} would share the id '{path.stem}'; rename one of them")
        seen[path.stem] = path


def _check_like(
    out: Path, extractor: Extractor, path: Path, features: np.ndarray, boxes: np.ndarray | None, like: tuple[int, bool]
) -> None:
    """UserError for regions that the store could not take, found before hours of work are spent on others."""
    fault = validate_values(as_floats(features), None, float(np.finfo(np.float16).max))
    if features.shape[1] != like[0]:
        fault = f"features of width {features.shape[1]}, but those before {like[0]}"
    elif (boxes is not None) != like[1]:
        fault = f"{'no ' if boxes is None else ''}boxes, unlike those before"
    if fault is not None:
        raise UserError(f"{out} is not written: image '{path.stem}' of extractor {extractor.name} has {fault}; mend it")


def _read_ahead(paths: Sequence[Path], batch_size: int, workers: int) -> Iterator[list[tuple[Path, Image.Image | str]]]:
    """Batches of pictures, or of why they cannot be read; the next batch is read while the last one is in use."""
    waiting = iter(paths)
    with ThreadPoolExecutor(workers) as pool:

        def submit() -> list[tuple[Path, Future[Image.Image | str]]]:
            return [(path, pool.submit(_try_to_read, path)) for path in islice(waiting, batch_size)]

        following = submit()
        try:
            while following:
                batch, following = following, submit()
                yield [(path, future.result()) for path, future in batch]
        finally:
            for _, future in following:
                future.cancel()


def _try_to_read(path: Path) -> Image.Image | str:
    try:
        return read_image(path)
    except UserError as error:
        return str(error)
