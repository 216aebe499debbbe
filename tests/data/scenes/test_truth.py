"""Truth of captions of hand-made scenes, and what the families absent and parity promise."""

from collections import Counter

import pytest

from legenda.data.scenes import Scene, check_caption
from legenda.data.scenes.language import is_odd, of_shape
from legenda.data.scenes.scene import PARITY_SHAPES, WARM, Family, Thing, make_scene


def make(family: Family, pair: tuple[int, int], *things: Thing) -> Scene:
    return Scene(family, family, things, pair, (240, 240, 240))


# A red circle left of a blue square, close; a green star far below.
NEAR = make(
    "near",
    (1, 2),
    Thing("star", "green", 0.5, 0.85, 0.1),
    Thing("circle", "red", 0.3, 0.3, 0.1),
    Thing("square", "blue", 0.42, 0.3, 0.1),
    Thing("cross", "pink", 0.8, 0.2, 0.1),
)
# A large black ring and a small pink one.
SIZE = make(
    "size",
    (2, 0),
    Thing("ring", "pink", 0.2, 0.2, 0.08),
    Thing("star", "green", 0.5, 0.85, 0.1),
    Thing("ring", "black", 0.7, 0.7, 0.16),
    Thing("cross", "red", 0.8, 0.2, 0.1),
)
# A brown star far above a brown cross.
BIND = make(
    "bind",
    (0, 1),
    Thing("star", "brown", 0.5, 0.2, 0.1),
    Thing("cross", "brown", 0.55, 0.8, 0.1),
    Thing("circle", "red", 0.1, 0.5, 0.1),
    Thing("ring", "blue", 0.9, 0.5, 0.1),
)


@pytest.mark.parametrize(
    ("caption", "true", "pair", "axis"),
    [
        ("a red circle next to a blue square", True, True, None),
        ("a blue square close to a red circle", True, True, None),
        ("a red circle and a blue square side by side", True, True, True),
        ("a red circle and a blue square one above the other", False, True, False),
        ("a red circle next to a green star", False, False, None),
        ("a red circle and a pink cross side by side", False, False, True),
        ("the larger circle is red", False, False, None),
        ("nothing to see", False, False, None),
    ],
)
def test_near(caption, true, pair, axis):
    verdict = check_caption(caption, NEAR)
    assert (verdict.true, verdict.pair, verdict.axis) == (true, pair, axis)
    assert (verdict.size, verdict.bind) == (None, None)


@pytest.mark.parametrize(
    ("scene", "caption", "true"),
    [
        (SIZE, "the black ring is larger than the pink ring", True),
        (SIZE, "the pink ring is smaller than the black one", True),
        (SIZE, "the larger ring is black", True),
        (SIZE, "the larger ring is pink", False),
        (SIZE, "the pink ring is the larger one", False),
        (SIZE, "the larger star is green", False),
        (SIZE, "a black ring next to a pink ring", False),
        (BIND, "the two brown things are one above the other", True),
        (BIND, "both brown things stand one above the other", True),
        (BIND, "the brown cross and the brown star are one above the other", True),
        (BIND, "the brown cross and the brown ring are one above the other", False),
        (BIND, "two brown things side by side", False),
        (BIND, "the two red things are one above the other", False),
        (BIND, "a brown star next to a brown cross", False),
    ],
)
def test_size_and_bind(scene, caption, true):
    verdict = check_caption(caption, scene)
    size, bind = (true if scene is family else None for family in (SIZE, BIND))
    assert (verdict.true, verdict.size, verdict.bind) == (true, size, bind)
    assert (verdict.pair, verdict.axis) == (None, None)


ABSENT = make("absent", (0, 1), Thing("circle", "pink", 0.2, 0.2, 0.1), Thing("ring", "red", 0.7, 0.2, 0.1))
# warm and striped is even, cool and striped is odd
SQUARE = Thing("square", "blue", 0.2, 0.2, 0.1, striped=True)
PARITY = make("parity", (1, 0), SQUARE, Thing("circle", "red", 0.7, 0.2, 0.1, striped=True))


@pytest.mark.parametrize(
    ("caption", "true", "present", "absent"),
    [
        ("no star and red ring and no cross", True, 1.0, 1.0),
        ("no star and blue ring and no cross", False, 0.0, 1.0),
        ("pink star and red ring and no cross", False, 1.0, 0.5),
        ("no star and no ring and no cross", False, 0.0, 1.0),
        ("red ring and no star and no cross", False, 0.0, 0.0),
        ("a red ring next to a pink circle", False, 0.0, 0.0),
    ],
)
def test_captions_of_absent(caption, true, present, absent):
    verdict = check_caption(caption, ABSENT)
    assert (verdict.true, verdict.present, verdict.absent) == (true, present, absent)
    assert bool(verdict.reason) != true


@pytest.mark.parametrize(
    ("caption", "true", "share"),
    [
        ("even circle and odd square", True, 1.0),
        ("odd circle and odd square", False, 0.5),
        ("odd circle and even square", False, 0.0),
        ("odd square and even circle", False, 0.0),
    ],
)
def test_captions_of_parity(caption, true, share):
    verdict = check_caption(caption, PARITY)
    assert (verdict.true, verdict.parity) == (true, share)


def test_no_single_feature_reveals_the_parity():
    things = [
        thing
        for index in range(1200)
        for shape in PARITY_SHAPES
        if (thing := of_shape(make_scene("train", index, families=("parity",)), shape))
    ]
    assert len(things) == 2400
    for feature in (lambda t: t.color, lambda t: t.striped, lambda t: t.shape, lambda t: t.color in WARM):
        counts = Counter((feature(thing), is_odd(thing)) for thing in things)
        for value in {value for value, _ in counts}:
            odd, even = counts[value, True], counts[value, False]
            assert abs(odd - even) < 4 * (odd + even) ** 0.5
