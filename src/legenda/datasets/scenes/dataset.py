"""A split of scenes as a model reads it: regions found in the pixels, and five references each."""

from dataclasses import dataclass

import numpy as np

from legenda.datasets.scenes.language import references
from legenda.datasets.scenes.pixels import FEATURE_DIM, draw_scene, find_things
from legenda.datasets.scenes.world import Scene, make_scene
from legenda.datasets.splits import SplitSizes

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
    """Return the first `count` scenes of a split, drawn and read back."""
    features = np.zeros((count, MOST_THINGS, FEATURE_DIM), dtype=np.float32)
    boxes = np.zeros((count, MOST_THINGS, 4), dtype=np.float32)
    mask = np.zeros((count, MOST_THINGS), dtype=bool)
    scenes = []
    for index in range(count):
        scene = make_scene(split, index, seed)
        found, found_boxes = find_things(draw_scene(scene))
        features[index, : len(found)] = found
        boxes[index, : len(found)] = found_boxes
        mask[index, : len(found)] = True
        scenes.append(scene)
    return SceneSplit(tuple(scenes), features, boxes, mask, tuple(references(scene) for scene in scenes))


@dataclass(frozen=True, kw_only=True)
class SceneCounts(SplitSizes):
    """How many scenes each split has, and the seed of their worlds; no two splits or seeds share a scene."""

    train: int = 12_000
    validation: int = 300
    test: int = 600

    def generate(self, name: str) -> SceneSplit:
        """Return the scenes of the split train, val or test, drawn and read back."""
        return make_split(name, self.size(name, "scenes"), self.seed)
