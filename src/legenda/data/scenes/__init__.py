"""Scenes: the embedded data set, on which it shows what an attention can express and what it cannot."""

from legenda.data.scenes.language import check_caption, references, truth_scores
from legenda.data.scenes.pixels import FEATURE_DIM, SCENES, SceneCounts, SceneSplit, draw_scene, find_things, make_split
from legenda.data.scenes.scene import FAMILIES, Scene, make_scene, make_scenes

__all__ = [
    "FAMILIES",
    "FEATURE_DIM",
    "SCENES",
    "Scene",
    "SceneCounts",
    "SceneSplit",
    "check_caption",
    "draw_scene",
    "find_things",
    "make_scene",
    "make_scenes",
    "make_split",
    "references",
    "truth_scores",
]
