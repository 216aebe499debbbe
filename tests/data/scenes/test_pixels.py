"""Regions come from the pixels alone: what is drawn is found again, and features tell only what a thing is."""

import io
from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from legenda.data.scenes import (
    FEATURE_DIM,
    Scene,
    SceneSplit,
    Thing,
    draw_scene,
    find_things,
    make_split,
)
from legenda.data.scenes.pixels import MAX_REGIONS, SIDE
from legenda.data.scenes.world import COLORS, SHAPES
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


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Root of the mean squared difference, where 1 is half of the way from black to white."""
    return float(np.sqrt(((a - b) ** 2).mean()))


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


def test_no_two_kinds_look_alike():
    """The nearest two, of one shape or one color, differ by more than a tenth of what usual kinds differ by."""
    patches = np.stack([patch(kind, 0.1) for kind in KINDS])
    assert len(np.unique(patches, axis=0)) == len(KINDS) == 72
    nearest = min(distance(a, b) for a, b in combinations(patches, 2))
    assert nearest > 0.08


def test_a_patch_depends_on_the_kind_only():
    """To the last digit: neither size, place, neighbors nor ground can be guessed from features."""
    of_kind = {kind: patch(kind, 0.1) for kind in KINDS}
    both = [*found_things(SPLIT), *found_things(make_split("train", 240))]
    assert len(both) > 2400
    for feature, thing in both:
        assert np.array_equal(feature, of_kind[thing.kind]), thing
    assert {thing.kind for _, thing in both} == set(KINDS)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_patch_is_exactly_the_same_at_every_size_that_scenes_have(shape):
    usual = patch(("blue", shape), 0.1)
    for pixels in range(17, 59):  # 0.12 / 2.2 to 0.18 of the side
        place = 0.2 + 0.01 * pixels, 0.8 - 0.011 * pixels
        assert np.array_equal(patch(("blue", shape), pixels / SIDE, *place), usual), pixels


def test_neighbors_do_not_leak_into_a_patch():
    """The box of the triangle holds a corner of its neighbor, which is blanked out."""
    triangle, square = Thing("triangle", "red", 0.5, 0.5, 0.14), Thing("square", "blue", 0.56, 0.44, 0.03)
    features, boxes = find_things(drawn(triangle, square))
    assert len(features) == 2
    own = np.abs(boxes - np.array(triangle.box)).max(axis=1).argmin()
    x1, y1, x2, y2 = boxes[own]
    assert x1 < square.x < x2
    assert y1 < square.y < y2
    assert distance(features[own], patch(("red", "triangle"), 0.14)) == 0


def test_a_ring_is_one_thing_and_things_that_touch_the_border_are_found():
    ring = Thing("ring", "green", 0.1, 0.5, 0.2)
    features, boxes = find_things(drawn(ring, Thing("frame", "pink", 0.6, 0.91, 0.18)))
    assert len(features) == 2
    assert boxes.min() == 0
    assert boxes.max() == 1


def test_boxes_do_not_depend_on_the_size_of_the_image():
    scene = SPLIT.scenes[0]
    _, usual = find_things(draw_scene(scene))
    _, larger = find_things(draw_scene(scene).resize((3 * SIDE, 2 * SIDE), Image.Resampling.NEAREST))
    assert larger == pytest.approx(usual, abs=1e-6)


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
    with pytest.raises(DataError, match="shows 0 things on a plain ground, where 1 to 50 can be described"):
        find_things(Image.new(mode, (50, 40)))


def with_dots(dots: int, side: int) -> Image.Image:
    """A black square, and so many red dots of so many pixels' sides."""
    image = drawn(Thing("square", "black", 0.9, 0.9, 0.1))
    for number in range(dots):
        x, y = 5 + 12 * (number % 20), 5 + 12 * (number // 20)
        image.paste((255, 0, 0), (x, y, x + side, y + side))
    return image


def test_specks_are_no_things():
    """Fewer than 1.5 of 10,000 pixels, which are 15.36 of 320 x 320."""
    assert len(find_things(with_dots(7, 3))[0]) == 1
    assert len(find_things(with_dots(7, 4))[0]) == 8
    assert len(find_things(with_dots(500, 1))[0]) == 1


def test_far_too_many_things_are_refused():
    assert len(find_things(with_dots(MAX_REGIONS - 1, 5))[0]) == MAX_REGIONS == 50
    with pytest.raises(DataError, match="shows 51 things on a plain ground, where 1 to 50 can be described"):
        find_things(with_dots(MAX_REGIONS, 5))
