"""The embedded moving scenes as a data set of captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from legenda.data.captions import CaptionDataset, DataModule
from legenda.data.scenes.video import (
    VIDEO_FEATURE_DIM,
    make_video_scene,
    video_features,
    video_references,
    video_scores,
)
from legenda.data.splits import SplitSizes
from legenda.text import Vocabulary

if TYPE_CHECKING:
    from legenda.regions import Regions


class MovingScenesData(SplitSizes):
    """The embedded moving scenes: how many of each split, and their seed."""

    kind: Literal["moving_scenes"] = "moving_scenes"
    train: int = 2_400
    validation: int = 120
    test: int = 300

    def open(self, progress: Callable[[str], None]) -> DataModule:
        """Draw the frames and finds their things in the pixels."""
        progress(f"drawing {self.train} moving scenes for training and {self.validation} for validation")
        train, validation = self.split("train"), self.split("val")
        vocabulary = Vocabulary.from_counts(train.tokenized.counts(), min_count=1)
        return DataModule(train, validation, vocabulary, VIDEO_FEATURE_DIM, False)

    def split(self, name: str) -> CaptionDataset:
        """Return the moving scenes train, val or test; `score` checks captions against the scenes."""
        scenes = {
            scene.id: scene
            for scene in (make_video_scene(name, i, self.seed) for i in range(self.size(name, "moving scenes")))
        }
        from legenda.regions import Regions

        features = np.stack([video_features(scene) for scene in scenes.values()])

        def read(positions: np.ndarray) -> Regions:
            return Regions.from_numpy(features[positions])

        def score(captions: Mapping[str, str]) -> dict[str, float | None]:
            return video_scores(captions, scenes)

        references = tuple(video_references(scene) for scene in scenes.values())
        return CaptionDataset(tuple(scenes), references, read, "moving scenes", "moving scenes", score)
