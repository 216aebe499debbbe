"""A split of scenes as a model reads it: regions found in the pixels, and five references each."""

from dataclasses import dataclass

import numpy as np

from legenda.data.scenes.language import references
from legenda.data.scenes.pixels import FEATURE_DIM, draw_scene, find_things
from legenda.data.scenes.world import Scene, make_scene

MOST_THINGS = 7


@dataclass(frozen=True, eq=False)
class SceneSplit:
    """Scenes with their regions, padded to MOST_THINGS, and their captions.

    features `(B, N, FEATURE_DIM)` float32, boxes `(B, N, 4)` float32, mask `(B, N)` bool, True where a thing is.
    """

    scenes: tuple[Scene, ...]
    features: np.ndarray
    boxes: np.ndarray
    mask: np.ndarray
    captions: tuple[tuple[str, ...], ...]


def make_split(split: str, count: int, seed: int = 0) -> SceneSplit:
    """The first `count` scenes of a split, drawn and read back."""
    features = np.zeros((count, MOST_THINGS, FEATURE_DIM), dtype=np.float32)
    boxes = np.zeros((count, MOST_THINGS, 4), dtype=np.float32)
    mask = np.zeros((count, MOST_THINGS), dtype=bool)
    scenes = []
    for index in range(count):
        scene = make_scene(split, index, seed)
        found, places = find_things(draw_scene(scene))
        features[index, : len(found)] = found
        boxes[index, : len(found)] = places
        mask[index, : len(found)] = True
        scenes.append(scene)
    return SceneSplit(tuple(scenes), features, boxes, mask, tuple(references(scene) for scene in scenes))
