"""Regions of drawn scenes, read by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from legenda.data.features.concat import RegionReader
from legenda.data.scenes.dataset import SceneSplit

if TYPE_CHECKING:
    from legenda.regions import Regions


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
