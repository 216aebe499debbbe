"""From pictures to a feature store with an extractor: a Python file of the user's, or one of our own."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from legenda.errors import UserError
from legenda.extractors.registry import EXTRACTORS, Extractor, is_registered, load_by_name
from legenda.features.validate import validate_regions
from legenda.plugins import reason_of, run_source


def load_extractor(path: str | Path, *, half: bool = False) -> Extractor:
    """Return an extractor: a registered one by its name, or that of a Python file that defines

        extract(pictures: list[PIL.Image.Image]) -> list[tuple[np.ndarray, np.ndarray | None]]

    A file's extractor is named by its stem and the first 8 digits of its SHA-256, so that stores tell versions apart.
    half: compute in half precision, for registered ones. Raises UserError when the file is missing, fails while it is
    loaded, or has no function `extract`.
    """
    if is_registered(str(path)):
        return load_by_name(str(path), half=half)
    if half:
        raise UserError("half precision is for extractors with a name, such as hf:MODEL; set it in your own file")
    path = Path(path)
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}); name a Python file with a function extract(pictures), "
            f"or one of: {', '.join(sorted(EXTRACTORS))}"
        ) from error
    name = f"{path.stem}-{hashlib.sha256(source).hexdigest()[:8]}"
    extract = getattr(run_source(path, source, f"legenda_extractor_{name}"), "extract", None)
    if not callable(extract):
        raise UserError(f"{path} defines no function extract(pictures); add it")
    return Extractor(name, extract)


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
        raise UserError(f"{where} failed ({reason_of(error)}); mend it") from error
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
        fault = validate_regions(*entry)
        if fault is not None:
            raise UserError(f"{where} gave {fault} for {path.name}; mend it")
    return given
