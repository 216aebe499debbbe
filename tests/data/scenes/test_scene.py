"""Scenes keep the promises of their families, whatever the seed."""

from itertools import combinations

import pytest

from legenda.data.scenes import Scene, make_scenes
from legenda.data.scenes.scene import TOUCHING, Thing, axis_of, gaps, next_to

SCENES = tuple(make_scenes("train", 450, seed=5))


def family(name: str) -> list[Scene]:
    return [scene for scene in SCENES if scene.family == name]


def test_a_scene_has_four_to_seven_things_no_two_of_a_kind_inside_the_image():
    for scene in SCENES:
        assert len({thing.kind for thing in scene.things}) == len(scene.things)
        for thing in scene.things:
            x1, y1, x2, y2 = thing.box
            assert 0 < x1 < x2 < 1
            assert 0 < y1 < y2 < 1
            assert 0.05 < thing.size <= 0.18
    assert {len(scene.things) for scene in SCENES} == {4, 5, 6, 7}


def test_near_scenes_have_one_pair_that_almost_touches_and_nothing_in_common():
    for scene in family("near"):
        assert sum(next_to(a, b) for a, b in combinations(scene.things, 2)) == 1
        assert 0.012 - 1e-9 <= max(gaps(scene.first, scene.second)) <= TOUCHING  # at least 3 pixels
        assert len({thing.color for thing in scene.things}) == len(scene.things)
        assert len({thing.shape for thing in scene.things}) == len(scene.things)
        assert axis_of(scene.first, scene.second) is not None


def test_size_scenes_have_two_of_one_shape_and_one_of_them_clearly_larger():
    for scene in family("size"):
        shapes = [thing.shape for thing in scene.things]
        assert len(set(shapes)) == len(shapes) - 1
        assert scene.first.shape == scene.second.shape
        assert len({thing.color for thing in scene.things}) == len(shapes)
        assert 1.4 - 1e-9 <= scene.first.size / scene.second.size <= 2.2 + 1e-9
        assert 0.12 <= scene.first.size <= 0.18
        rest = [thing for thing in scene.things if thing not in (scene.first, scene.second)]
        assert all(0.06 <= thing.size <= 0.16 for thing in rest)


def test_bind_scenes_have_two_of_one_color_that_stand_clearly():
    for scene in family("bind"):
        colors = [thing.color for thing in scene.things]
        assert len(set(colors)) == len(colors) - 1
        assert scene.first.color == scene.second.color
        assert len({thing.shape for thing in scene.things}) == len(colors)
        across, down = abs(scene.first.x - scene.second.x), abs(scene.first.y - scene.second.y)
        assert max(across, down) >= 2 * min(across, down)


@pytest.mark.parametrize(
    ("a", "b", "expected", "way"),
    [
        (Thing("circle", "red", 0.4, 0.5, 0.1), Thing("square", "blue", 0.52, 0.5, 0.1), True, "horizontal"),
        (Thing("circle", "red", 0.5, 0.4, 0.1), Thing("square", "blue", 0.51, 0.52, 0.1), True, "vertical"),
        (Thing("circle", "red", 0.4, 0.5, 0.1), Thing("square", "blue", 0.54, 0.5, 0.1), False, "horizontal"),
        (Thing("circle", "red", 0.4, 0.4, 0.1), Thing("square", "blue", 0.51, 0.51, 0.1), False, None),
        (Thing("circle", "red", 0.2, 0.2, 0.1), Thing("square", "blue", 0.8, 0.5, 0.1), False, "horizontal"),
        (Thing("circle", "red", 0.2, 0.2, 0.1), Thing("square", "blue", 0.8, 0.51, 0.1), False, None),
    ],
)
def test_what_next_to_and_the_ways_to_stand_mean(a, b, expected, way):
    assert next_to(a, b) is next_to(b, a) is expected
    assert axis_of(a, b) == axis_of(b, a) == way
