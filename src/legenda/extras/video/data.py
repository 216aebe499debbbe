"""Moving scenes: the embedded data set of captioned videos.

Each motion has its reverse (left and right, up and down, growing and shrinking), whose frames are the same in another
order, so only the order of the frames distinguishes a motion from its reverse.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from legenda.config import PositiveInt
from legenda.data.captions import CaptionDataset, DataModule
from legenda.data.registry import SplitSizes
from legenda.data.scenes.pixels import FEATURE_DIM, draw_scene, find_things
from legenda.data.scenes.scene import COLORS, SHAPES, Scene, Thing
from legenda.images.extractor import ExtractorIdentity
from legenda.regions import Regions
from legenda.terminal import counted
from legenda.text import Vocabulary

FRAMES = 6
_MOVING_SCENES = ExtractorIdentity(name="moving scenes")
_VIDEO_FEATURE_DIM = FEATURE_DIM + 3
"""Channels of a frame: the patch of its object, and the object's center and size."""

MOTIONS = ("left", "right", "up", "down", "grows", "shrinks")
_GOING = ("moves {}", "goes {}", "is moving {}")
_CHANGING = {"grows": ("grows", "gets larger", "is growing"), "shrinks": ("shrinks", "gets smaller", "is shrinking")}
_LEAST, _MOST = 0.08, 0.3


@dataclass(frozen=True)
class VideoScene:
    """The thing in each frame, first to last, and its motion."""

    id: str
    things: tuple[Thing, ...]
    motion: str
    ground: tuple[int, int, int]


def make_video_scene(split: str, index: int, seed: int = 0) -> VideoScene:
    """Return moving scene `index` of a split; motions alternate, and splits and seeds share no random numbers."""
    identity = f"moving-{split}-{seed}-{index:06d}"
    rng = random.Random(identity)
    motion = MOTIONS[index % len(MOTIONS)]
    level = rng.randint(225, 255)
    kind = rng.choice(SHAPES), rng.choice(list(COLORS))
    if motion in _CHANGING:
        x, y = (rng.uniform(0.3, 0.7) for _ in range(2))
        low = rng.uniform(_LEAST, 0.2)
        sizes = np.linspace(low, rng.uniform(low + 0.1, 0.45), FRAMES)
        things = [Thing(*kind, x, y, float(size)) for size in sizes]
    else:
        size = rng.uniform(_LEAST, _MOST)
        edge = size / 2 + 0.01
        fixed, first = rng.uniform(edge, 1 - edge), rng.uniform(edge, 0.45 - edge / 2)
        way = np.linspace(first, rng.uniform(first + 0.25, 1 - edge), FRAMES)
        across = motion in ("left", "right")
        things = [Thing(*kind, *((float(p), fixed) if across else (fixed, float(p))), size) for p in way]
    if motion in ("left", "up", "shrinks"):
        things.reverse()
    return VideoScene(identity, tuple(things), motion, (level, level, level))


def video_references(scene: VideoScene) -> tuple[str, ...]:
    """Return five true captions of a moving scene, always the same for it."""
    rng = random.Random(f"language-{scene.id}")
    thing = scene.things[0]
    phrases = _CHANGING.get(scene.motion) or tuple(form.format(scene.motion) for form in _GOING)
    forms = [f"{article} {thing.color} {thing.shape} {words}" for article in ("a", "the") for words in phrases]
    return tuple(rng.sample(forms, 5))


_SENTENCE = re.compile(r"(?:a|the) (\w+) (\w+) (.+)")
_STATEMENTS = {words: motion for motion, forms in _CHANGING.items() for words in forms} | {
    form.format(motion): motion for motion in MOTIONS[:4] for form in _GOING
}


def video_scores(captions: Mapping[str, str], scenes: Mapping[str, VideoScene]) -> dict[str, float | None]:
    """Return the share of captions that name both, the thing and the motion correctly: truth, thing, motion."""
    correct = np.array([_check(caption, scenes[name]) for name, caption in captions.items()], dtype=float)
    if not len(correct):
        return dict.fromkeys(("truth", "thing", "motion"))
    thing, motion = correct.mean(axis=0).tolist()
    return {"truth": float(correct.all(axis=1).mean()), "thing": thing, "motion": motion}


def _check(caption: str, scene: VideoScene) -> tuple[bool, bool]:
    """Return whether the caption names the thing and the motion correctly; both are False outside the grammar."""
    read = _SENTENCE.fullmatch(caption)
    if read is None or read[3] not in _STATEMENTS:
        return False, False
    return (read[1], read[2]) == scene.things[0].kind, _STATEMENTS[read[3]] == scene.motion


def _video_features(scene: VideoScene) -> np.ndarray:
    """Return the frames' features `(FRAMES, _VIDEO_FEATURE_DIM)` float32, found in the pixels of each drawn frame."""
    frames = []
    for thing in scene.things:
        features, boxes = find_things(draw_scene(Scene(scene.id, "near", (thing,), (0, 0), scene.ground)))
        x1, y1, x2, y2 = boxes[0]
        where = np.array([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1], dtype=np.float32)
        frames.append(np.concatenate([features[0], 2 * where - 1]))
    return np.stack(frames)


class MovingScenesData(SplitSizes):
    """The embedded moving scenes: how many of each split, and their seed."""

    kind: Literal["moving_scenes"] = "moving_scenes"
    train: PositiveInt = 2_400
    validation: PositiveInt = 120
    test: PositiveInt = 300

    def open(self, progress: Callable[[str], None]) -> DataModule:
        """Draw the frames and find their things in the pixels."""
        progress(f"drawing {counted(self.train, 'moving scenes')} for training and {self.validation} for validation")
        train, validation = self.split("train"), self.split("val")
        vocabulary = Vocabulary.from_counts(train.tokenized.counts(), min_count=1)
        return DataModule(train, validation, vocabulary, _VIDEO_FEATURE_DIM, False)

    def split(self, name: str) -> CaptionDataset:
        """Return the moving scenes train, val or test; `score` checks captions against the scenes."""
        made = (make_video_scene(name, index, self.seed) for index in range(self.size(name, "moving scenes")))
        scenes = {scene.id: scene for scene in made}
        features = np.stack(list(map(_video_features, scenes.values())))

        def read(positions: np.ndarray) -> Regions:
            return Regions.from_numpy(features[positions])

        references = tuple(map(video_references, scenes.values()))
        score = partial(video_scores, scenes=scenes)
        return CaptionDataset(tuple(scenes), references, read, "moving scenes", _MOVING_SCENES, score)
