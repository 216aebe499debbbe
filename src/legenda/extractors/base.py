"""Extractors: functions from images to region features, and a checked call of one."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from legenda.data.features.validate import validate_regions
from legenda.errors import DataError, LegendaError
from legenda.extractors.familiarity import describe_unfamiliar, find_unfamiliar
from legenda.plugins import reason_of

_LOG = logging.getLogger(__name__)

ImageRegions = tuple[np.ndarray, np.ndarray | None]
"""Features (n, D) and boxes (n, 4) of one image, x1 y1 x2 y2 in 0..1, or None."""
Extract = Callable[[list[Image.Image]], list[ImageRegions]]
"""A function from RGB images to the regions of each."""


@dataclass(frozen=True)
class Extractor:
    """A function from images to regions, and the name and version that are stored with its features.

    with_num_regions: of a detector, returns the function for a fixed number of regions.
    """

    name: str
    extract: Extract
    version: str = ""
    with_num_regions: Callable[[int], Extract] | None = None


DOWNLOAD_HINT = "add --allow-download (in Python, allow_download=True) to fetch it, or name it with --extractor"


def run_extractor(extractor: Extractor, images: list[Image.Image], paths: Sequence[Path]) -> list[ImageRegions]:
    """Call the extractor on a batch and check types, shapes and values of the result.

    `paths` name the images in errors. Raises DataError when the extractor fails, with the message of its own
    LegendaError, or returns anything but regions. Warns of images unlike those that its models are trained on.
    """
    where = f"the extractor {extractor.name}, called with {len(images)} images ({paths[0].name} to {paths[-1].name}),"
    try:
        regions = extractor.extract(images)
    except LegendaError as error:
        names = f"{paths[0]}" if len(images) == 1 else f"{paths[0]} to {paths[-1]}"
        raise DataError(f"{names}: {error}") from error
    except Exception as error:
        raise DataError(f"{where} failed ({reason_of(error)}); correct it") from error
    if not isinstance(regions, list) or len(regions) != len(images):
        count = f" of {len(regions)}" if isinstance(regions, list | tuple) else ""
        found = f"{type(regions).__name__}{count}"
        raise DataError(f"{where} returned a {found}; it must return a list with one entry per image")
    for path, entry in zip(paths, regions, strict=True):
        types = [type(part).__name__ for part in entry] if isinstance(entry, tuple | list) else [type(entry).__name__]
        if types not in (["ndarray", "ndarray"], ["ndarray", "NoneType"]):
            raise DataError(
                f"{where} returned ({', '.join(types)}) for {path.name}; "
                "it must return a pair of NumPy arrays: features (n, D) and boxes (n, 4) or None"
            )
        fault = validate_regions(*entry)
        if fault is not None:
            raise DataError(f"{where} returned {fault} for {path.name}; correct it")
    named = zip(map(str, paths), (boxes for _, boxes in regions), strict=True)
    warning = describe_unfamiliar(find_unfamiliar(extractor.name, named))
    if warning is not None:
        _LOG.warning(warning)
    return regions
