"""Images unlike those that a model was trained on."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

_MAX_SCENE_SIDE = 1 / 3
"""In a scene, things are at most 0.18 of the image long. In each of 563 photographs (559 of Flickr8k) in which the
extractor of scenes finds regions, one is longer than a third."""


def find_unfamiliar(extractor: str, images: Iterable[tuple[str, np.ndarray | None]]) -> list[str]:
    """Return the names of the images unlike those that models of an extractor are trained on.

    images: names and boxes of the regions, `(n, 4)` in 0..1. Only for the extractor "scenes" this is known: images
    with a region longer than a third of the image.
    """
    if extractor != "scenes":
        return []
    sides = ((name, boxes[:, 2:] - boxes[:, :2]) for name, boxes in images if boxes is not None and len(boxes))
    return [name for name, found in sides if found.max() > _MAX_SCENE_SIDE]


def describe_unfamiliar(names: list[str]) -> str | None:
    """Return the sentence that warns of such images; None where there is none."""
    if not names:
        return None
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (
        f"{names[0]}{others}: a model of scenes knows only colored things on a plain ground, which this does not show; "
        "use a model of photographs"
    )
