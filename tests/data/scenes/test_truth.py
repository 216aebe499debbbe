"""Truth of hand-made scenes, counted by hand."""

import pytest

from legenda.data.scenes import TRUTHS, Scene, Thing, check_caption, truth_scores

WHITE = (240, 240, 240)

# A red circle left of a blue square, close; a green star far below.
NEAR = Scene(
    "near",
    "near",
    (
        Thing("star", "green", 0.5, 0.85, 0.1),
        Thing("circle", "red", 0.3, 0.3, 0.1),
        Thing("square", "blue", 0.42, 0.3, 0.1),
        Thing("cross", "pink", 0.8, 0.2, 0.1),
    ),
    (1, 2),
    WHITE,
)
# A large black ring and a small pink one.
SIZE = Scene(
    "size",
    "size",
    (
        Thing("ring", "pink", 0.2, 0.2, 0.08),
        Thing("star", "green", 0.5, 0.85, 0.1),
        Thing("ring", "black", 0.7, 0.7, 0.16),
        Thing("cross", "red", 0.8, 0.2, 0.1),
    ),
    (2, 0),
    WHITE,
)
# A brown star far above a brown cross.
BIND = Scene(
    "bind",
    "bind",
    (
        Thing("star", "brown", 0.5, 0.2, 0.1),
        Thing("cross", "brown", 0.55, 0.8, 0.1),
        Thing("circle", "red", 0.1, 0.5, 0.1),
        Thing("ring", "blue", 0.9, 0.5, 0.1),
    ),
    (0, 1),
    WHITE,
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
    ("caption", "true"),
    [
        ("the black ring is larger than the pink ring", True),
        ("the pink ring is smaller than the black one", True),
        ("the larger ring is black", True),
        ("the larger ring is pink", False),
        ("the pink ring is the larger one", False),
        ("the larger star is green", False),
        ("a black ring next to a pink ring", False),
    ],
)
def test_size(caption, true):
    verdict = check_caption(caption, SIZE)
    assert (verdict.true, verdict.size) == (true, true)
    assert (verdict.pair, verdict.axis, verdict.bind) == (None, None, None)


@pytest.mark.parametrize(
    ("caption", "true"),
    [
        ("the two brown things are one above the other", True),
        ("both brown things stand one above the other", True),
        ("the brown cross and the brown star are one above the other", True),
        ("the brown cross and the brown ring are one above the other", False),
        ("two brown things side by side", False),
        ("the two red things are one above the other", False),
        ("a brown star next to a brown cross", False),
    ],
)
def test_bind(caption, true):
    verdict = check_caption(caption, BIND)
    assert (verdict.true, verdict.bind) == (true, true)
    assert (verdict.pair, verdict.axis, verdict.size) == (None, None, None)


def test_shares_count_each_family_by_itself():
    scenes = {str(number): scene for number, scene in enumerate((NEAR, NEAR, NEAR, SIZE, SIZE, BIND))}
    captions = {
        "0": "a red circle next to a blue square",
        "1": "a red circle and a blue square one above the other",
        "2": "a blue square and a red circle side by side",
        "3": "the larger ring is black",
        "4": "the larger ring is pink",
        "5": "two brown things side by side",
    }
    expected = {"truth": 3 / 6, "pair": 3 / 3, "axis": 1 / 2, "size": 1 / 2, "bind": 0 / 1}
    assert truth_scores(captions, scenes) == pytest.approx(expected)


def test_a_share_of_nothing_is_none():
    assert truth_scores({}, {}) == dict.fromkeys(TRUTHS)
    scores = truth_scores({"near": "a red circle next to a blue square"}, {"near": NEAR})
    assert scores == {"truth": 1.0, "pair": 1.0, "axis": None, "size": None, "bind": None}
