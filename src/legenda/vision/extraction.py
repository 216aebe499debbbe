"""From pictures to a feature store with an extractor: a Python file of the user's, or one of our own."""

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType

import numpy as np
from PIL import Image

from legenda.data.features import find_fault, write_store
from legenda.errors import UserError
from legenda.vision.pictures import read_picture

Extract = Callable[[list[Image.Image]], list[tuple[np.ndarray, np.ndarray | None]]]


@dataclass(frozen=True)
class Extractor:
    """What turns pictures into regions.

    name: stored with the features; extract: RGB pictures to, for each, features (n, D) and boxes (n, 4) or None,
    boxes as x1 y1 x2 y2 in 0..1 of the picture.
    """

    name: str
    extract: Extract


@dataclass(frozen=True)
class ExtractionReport:
    """What an extraction did: images written, pictures skipped with the reason why, time taken in seconds."""

    images: int
    skipped: tuple[tuple[Path, str], ...]
    seconds: float


def load_extractor(path: str | Path, *, builtin: Mapping[str, Extract] = MappingProxyType({})) -> Extractor:
    """Loads a built-in extractor by name, or a Python file that defines

        extract(pictures: list[PIL.Image.Image]) -> list[tuple[np.ndarray, np.ndarray | None]]

    A file's extractor is named by its stem and the first 8 digits of its SHA-256, so that stores tell versions apart.
    Raises UserError when the file is missing, fails while it is loaded, or has no function `extract`.
    """
    if str(path) in builtin:
        return Extractor(str(path), builtin[str(path)])
    path = Path(path)
    try:
        source = path.read_bytes()
    except OSError as error:
        known = f", or one of: {', '.join(sorted(builtin))}" if builtin else ""
        raise UserError(
            f"{path} cannot be read ({error.strerror}); name a Python file with a function extract(pictures){known}"
        ) from error
    name = f"{path.stem}-{hashlib.sha256(source).hexdigest()[:8]}"
    extract = getattr(_run_module(path, source, name), "extract", None)
    if not callable(extract):
        raise UserError(f"{path} defines no function extract(pictures); add it")
    return Extractor(name, extract)


def _run_module(path: Path, source: bytes, name: str) -> ModuleType:
    # run from the very bytes that were hashed: no compiled file is left in the user's folder or taken from there
    module = ModuleType(f"legenda_extractor_{name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise UserError(f"{path} fails while it is loaded ({_reason(error)}); mend that extractor") from error
    return module


def extract_store(
    pictures: Sequence[str | Path],
    extractor: Extractor,
    out: str | Path,
    *,
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> ExtractionReport:
    """Runs the extractor over all pictures and writes the feature store `out`, in the order given.

    An image's id is its file name without suffix. Pictures that cannot be read are left out and listed in the report.
    progress: called after each batch with the number of pictures done and of all.
    Raises UserError when two pictures share an id, when no picture can be read, or when the extractor fails or gives
    something else than regions; nothing is written then.
    """
    if batch_size < 1:
        raise UserError(f"batch_size is {batch_size}; give at least 1")
    paths = [Path(picture) for picture in pictures]
    _check_ids(paths)
    began = time.monotonic()
    skipped: list[tuple[Path, str]] = []

    def regions() -> Iterator[tuple[str, np.ndarray, np.ndarray | None]]:
        for first in range(0, len(paths), batch_size):
            batch = paths[first : first + batch_size]
            readable = list(_read_all(batch, skipped))
            if readable:
                given = run_extractor(extractor, [picture for _, picture in readable], [path for path, _ in readable])
                for (path, _), (features, boxes) in zip(readable, given, strict=True):
                    yield path.stem, features, boxes
            if progress is not None:
                progress(first + len(batch), len(paths))
        if len(skipped) == len(paths):
            first_reason = f"; the first: {skipped[0][1]}" if skipped else ""
            raise UserError(f"{out} is not written: none of the {len(paths)} pictures can be read{first_reason}")

    write_store(out, regions(), extractor=extractor.name)
    return ExtractionReport(len(paths) - len(skipped), tuple(skipped), time.monotonic() - began)


def _check_ids(pictures: Sequence[Path]) -> None:
    seen: dict[str, Path] = {}
    for path in pictures:
        if path.stem in seen:
            raise UserError(f"{seen[path.stem]} and {path} would share the id '{path.stem}'; rename one of them")
        seen[path.stem] = path


def _read_all(paths: Sequence[Path], skipped: list[tuple[Path, str]]) -> Iterator[tuple[Path, Image.Image]]:
    for path in paths:
        try:
            picture = read_picture(path)
        except UserError as error:
            skipped.append((path, str(error)))
        else:
            yield path, picture


def run_extractor(
    extractor: Extractor, pictures: list[Image.Image], paths: Sequence[Path]
) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """One call of the extractor, its answer checked for form and values.

    `paths` name the pictures in errors. Raises UserError when the extractor fails or gives something else.
    """
    where = f"the extractor {extractor.name}, given {len(pictures)} pictures ({paths[0].name} to {paths[-1].name}),"
    try:
        given = extractor.extract(pictures)
    except Exception as error:
        raise UserError(f"{where} failed ({_reason(error)}); mend it") from error
    if not isinstance(given, list) or len(given) != len(pictures):
        count = f" of {len(given)}" if isinstance(given, list | tuple) else ""
        raise UserError(f"{where} gave a {type(given).__name__}{count}; it must give a list with one entry per picture")
    for path, entry in zip(paths, given, strict=True):
        kinds = [type(part).__name__ for part in entry] if isinstance(entry, tuple | list) else [type(entry).__name__]
        if kinds not in (["ndarray", "ndarray"], ["ndarray", "NoneType"]):
            raise UserError(
                f"{where} gave ({', '.join(kinds)}) for {path.name}; "
                "it must give a pair of NumPy arrays: features (n, D) and boxes (n, 4) or None"
            )
        fault = find_fault(*entry)
        if fault is not None:
            raise UserError(f"{where} gave {fault} for {path.name}; mend it")
    return given


def _reason(error: BaseException) -> str:
    """One line about an exception of somebody else's code."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
