"""The fingerprint of an extractor: projections of its features of a fixed image."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image

from legenda.data.features.identity import ExtractorIdentity
from legenda.errors import LegendaError
from legenda.extractors.base import Extractor, run_extractor

_PROJECTIONS = 2


def identify(extractor: Extractor) -> ExtractorIdentity:
    """Return the identity of an extractor; only one that is read from files is run on the test image.

    An extractor that fails on the image has no fingerprint.
    """
    identity = ExtractorIdentity(extractor.name, extractor.version)
    if identity.base_name != identity.name:
        with suppress(LegendaError):
            (regions,) = run_extractor(extractor, [draw_test_image()], [Path("test image")])
            width, values = regions[0].shape[1], fingerprint(*regions)
            return ExtractorIdentity(extractor.name, extractor.version, width, values)
    return identity


def find_mismatch(recorded: ExtractorIdentity, extractor: Extractor) -> str | None:
    """Return how an extractor differs from a recorded one, as the end of a sentence about it; None where it does not.

    It is run on the test image only where its name, with the digest of its files, is another one.
    """
    return None if extractor.name == recorded.name else recorded.find_difference(identify(extractor))


def draw_test_image() -> Image.Image:
    """Return the test image, 320 x 240: smooth colors with a disc and a rectangle."""
    y, x = np.mgrid[0:240, 0:320]
    pixels = np.stack([x * 255 / 319, y * 255 / 239, 127.5 + 127.5 * np.sin(x / 9) * np.cos(y / 13)], axis=-1)
    pixels[(x - 90) ** 2 + (y - 120) ** 2 < 60**2] = [230, 40, 30]
    pixels[40:110, 190:290] = [20, 60, 220]
    return Image.fromarray(pixels.astype(np.uint8))


def fingerprint(features: np.ndarray, boxes: np.ndarray | None) -> tuple[float, ...]:
    """Return the root mean square of the features, and projections of their means, plain and weighted by box centers.

    The projections are on fixed vectors of +-1, in the scale of the features. features: (n, D); boxes: (n, 4) or None.
    """
    values = features.astype(np.float64)
    centers = np.zeros((len(values), 2)) if boxes is None else boxes[:, :2] / 2 + boxes[:, 2:] / 2
    weights = np.concatenate([np.ones((len(values), 1)), centers.astype(np.float64)], axis=1)
    moments = weights.T @ values / len(values)  # (3, D)
    index = np.arange(values.shape[1])
    signs = np.stack([np.where(np.sin((index + 1) * (row + 1.7)) < 0, -1.0, 1.0) for row in range(_PROJECTIONS)])
    projections = moments @ signs.T / np.sqrt(len(index))
    return (float(np.sqrt((values**2).mean())), *map(float, projections.ravel()))
