"""A split of scenes as a model reads it: regions found in the pixels, and five references each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self, get_args

import numpy as np
from pydantic import model_validator

from legenda.config import PositiveInt
from legenda.data.registry import S, SplitSizes
from legenda.data.scenes.language import references
from legenda.data.scenes.pixels import FEATURE_DIM, draw_scene, find_things
from legenda.data.scenes.scene import FAMILIES, NUM_ABSENT, Family, Scene, make_scene
from legenda.errors import ConfigError
from legenda.features.base import RegionReader
from legenda.io import atomic_write, verified

if TYPE_CHECKING:
    from legenda.regions import Regions


MOST_THINGS = 7


@dataclass(frozen=True, eq=False)
class SceneSplit:
    """Scenes with their regions, padded to one number, and their captions.

    features `(B, N, FEATURE_DIM)` float32, boxes `(B, N, 4)` float32, mask `(B, N)` bool, True where a thing is.
    """

    scenes: tuple[Scene, ...]
    features: np.ndarray
    boxes: np.ndarray
    mask: np.ndarray
    captions: tuple[tuple[str, ...], ...]


def make_split(
    split: str, count: int, seed: int = 0, families: Sequence[Family] = FAMILIES, cache: Path | None = None
) -> SceneSplit:
    """Return the first `count` scenes of a split, drawn and read back.

    cache: a folder that keeps the regions of such splits, which takes six times as long to draw as to read.
    """
    scenes = tuple(make_scene(split, index, seed, families) for index in range(count))
    path = None if cache is None else cache / f"{'-'.join(families)}-{split}-{seed}-{count}.npz"
    if path is not None and path.exists():
        arrays = verified(lambda: dict(np.load(path, allow_pickle=False)), path, "delete it to draw the scenes again")
    else:
        arrays = _draw(scenes)
        if path is not None:
            with atomic_write(path) as partial, partial.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
    return SceneSplit(scenes, captions=tuple(references(scene) for scene in scenes), **arrays)


def _draw(scenes: Sequence[Scene]) -> dict[str, np.ndarray]:
    """Return features, boxes and mask of scenes."""
    most = NUM_ABSENT if any(scene.family in ("absent", "complete") for scene in scenes) else MOST_THINGS
    features = np.zeros((len(scenes), most, FEATURE_DIM), dtype=np.float32)
    boxes = np.zeros((len(scenes), most, 4), dtype=np.float32)
    mask = np.zeros((len(scenes), most), dtype=bool)
    for index, scene in enumerate(scenes):
        region_features, region_boxes = find_things(draw_scene(scene))
        features[index, : len(region_features)] = region_features
        boxes[index, : len(region_features)] = region_boxes
        mask[index, : len(region_features)] = True
    return {"features": features, "boxes": boxes, "mask": mask}


class SceneCounts(SplitSizes[S]):
    """How many scenes each split has, and their seed; no two splits or seeds share a scene."""

    train: PositiveInt = 12_000
    validation: PositiveInt = 300
    test: PositiveInt = 600
    families: tuple[Family, ...] = FAMILIES
    """The families that alternate, at least one: near, size, bind; for captions also absent, complete, parity."""
    cache: Path | None = None
    """A folder that keeps the regions of the scenes for other runs."""

    @model_validator(mode="after")
    def _check_scene_counts(self) -> Self:
        if not self.families:
            raise ConfigError(f"families must name at least one of {', '.join(get_args(Family))}")
        return self

    def generate(self, name: str) -> SceneSplit:
        """Return the scenes of the split train, val or test, drawn and read back."""
        return make_split(name, self.size(name, "scenes"), self.seed, self.families, self.cache)


def scene_reader(split: SceneSplit, scenes: Sequence[int] | None = None) -> RegionReader:
    """Return a function from positions `(B,)` to the Regions of their scenes.

    scenes: the index of the scene of each position; None where the positions are those of the scenes.
    """
    import torch

    from legenda.regions import Regions

    regions = Regions.from_numpy(split.features, split.boxes, split.mask)
    index = np.arange(len(split.scenes)) if scenes is None else np.asarray(scenes)

    def read(positions: np.ndarray) -> Regions:
        return regions[torch.from_numpy(index[positions])]

    return read
