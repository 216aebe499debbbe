"""Regions come from the pixels alone: what is drawn is found again, and features tell only what a thing is."""

import io

import numpy as np
import pytest
from PIL import Image

from legenda.data.scenes import FEATURE_DIM, Scene, SceneSplit, draw_scene, make_split
from legenda.data.scenes.pixels import SIDE, find_things
from legenda.data.scenes.scene import COLORS, SHAPES, Thing
from legenda.errors import DataError

GROUND = (240, 240, 240)
KINDS = [(color, shape) for color in COLORS for shape in SHAPES]
SPLIT = make_split("val", 240)


def drawn(*things: Thing, ground: tuple[int, int, int] = GROUND) -> Image.Image:
    return draw_scene(Scene("by hand", "near", things, (0, 0), ground))


def patch(kind: tuple[str, str], size: float, x: float = 0.5, y: float = 0.5, ground=GROUND) -> np.ndarray:
    features, _ = find_things(drawn(Thing(kind[1], kind[0], x, y, size), ground=ground))
    assert len(features) == 1
    return features[0]


def found_things(split: SceneSplit) -> list[tuple[np.ndarray, Thing]]:
    """Each feature of a split with the thing whose box is nearest to its own."""
    both = []
    for scene, features, boxes, mask in zip(split.scenes, split.features, split.boxes, split.mask, strict=True):
        places = np.array([thing.box for thing in scene.things])
        for feature, box in zip(features[mask], boxes[mask], strict=True):
            both.append((feature, scene.things[np.abs(places - box).max(axis=1).argmin()]))
    return both


def test_exactly_the_things_are_found_and_their_boxes_are_right_to_a_pixel():
    for scene, boxes, mask in zip(SPLIT.scenes, SPLIT.boxes, SPLIT.mask, strict=True):
        assert mask.sum() == len(scene.things), scene.id
        places = np.array([thing.box for thing in scene.things])
        off = np.abs(places[:, None] - boxes[mask]).max(axis=2)  # every thing against every box
        assert sorted(off.argmin(axis=1)) == list(range(len(scene.things)))
        assert off.min(axis=1).max() * SIDE <= 1.0, scene.id


def test_what_a_split_pads_is_marked_and_zero():
    assert SPLIT.features.shape == (240, 7, FEATURE_DIM)
    assert not SPLIT.features[~SPLIT.mask].any()
    assert not SPLIT.boxes[~SPLIT.mask].any()
    assert np.isfinite(SPLIT.features).all()


def test_a_patch_depends_on_the_kind_only():
    """To the last digit: neither size, place, neighbors nor ground can be guessed from features."""
    of_kind = {kind: patch(kind, 0.1) for kind in KINDS}
    both = [*found_things(SPLIT), *found_things(make_split("train", 240))]
    assert len(both) > 2400
    for feature, thing in both:
        assert np.array_equal(feature, of_kind[thing.kind]), thing
    assert {thing.kind for _, thing in both} == set(KINDS)


@pytest.mark.parametrize("quality", [90, 75])
def test_a_compressed_image_shows_the_same_number_of_things(quality):
    """Also where two almost touch: their gap of 3 pixels or more stays open."""
    for scene in SPLIT.scenes[:120]:
        file = io.BytesIO()
        draw_scene(scene).save(file, format="JPEG", quality=quality)
        features, _ = find_things(Image.open(file))
        assert len(features) == len(scene.things), scene.id


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P"])
def test_a_image_that_shows_nothing_is_a_mistake_of_the_user(mode):
    with pytest.raises(DataError, match="0 things"):
        find_things(Image.new(mode, (50, 40)))
