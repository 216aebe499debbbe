"""Scenes: a few colored things on a plain background, generated from a seed, each of one family.

near: one pair almost touches, all others are far apart; all shapes and all colors differ.
size: exactly two things share a shape, one clearly larger; all colors differ.
bind: exactly two things share a color, side by side or one above the other, anywhere; all shapes differ.

The kinds of the things determine which of these three it is, while statements about the pair depend on their boxes.
Three families, for experiments on attention, need no boxes:

absent: nine things; of CHECKED shapes each is there once or, half of the time, not at all.
complete: the same, but each of CHECKED shapes is there.
parity: a circle and a square, each of a warm or cool color and plain or striped, all four equally often, and others.
In these, no two things have quite the same color.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Family = Literal["near", "size", "bind", "absent", "complete", "parity"]
Axis = Literal["horizontal", "vertical"]

FAMILIES: tuple[Family, ...] = ("near", "size", "bind")
"""The families of the data sets unless others are named."""
SHAPES = ("circle", "square", "triangle", "diamond", "star", "cross", "ring", "frame")
COLORS = {
    "red": (214, 39, 40),
    "orange": (255, 140, 20),
    "yellow": (240, 215, 30),
    "green": (40, 150, 60),
    "blue": (40, 80, 215),
    "purple": (130, 50, 170),
    "pink": (245, 130, 190),
    "brown": (120, 75, 45),
    "black": (25, 25, 25),
}

CHECKED = ("star", "ring", "cross")
"""The shapes that captions of the families absent and complete are about."""
NUM_ABSENT = 9
"""Things of a scene of these families."""
WARM, COOL = ("red", "orange", "yellow", "pink"), ("green", "blue", "purple", "black")
"""The colors of the family parity."""
_MAX_TINT = 25
"""The largest change of red, green and blue in the families absent, complete and parity."""
PARITY_SHAPES = ("circle", "square")
"""The shapes that its captions are about."""

TOUCHING = 0.03
"""The widest gap, in sides of the image, between the boxes of two things that are next to each other."""
_APART = 0.09
"""The least gap, on one axis or the other, between the boxes of any other two."""


@dataclass(frozen=True)
class Thing:
    """One thing: its kind, and its center and size (both sides of its box) in sides of the image.

    striped: with darker lines. tint: what is added to the red, green and blue of its color.
    """

    shape: str
    color: str
    x: float
    y: float
    size: float
    striped: bool = False
    tint: tuple[int, int, int] = (0, 0, 0)

    @property
    def kind(self) -> tuple[str, str]:
        """Color and shape, which together are unique in the scene."""
        return self.color, self.shape

    @property
    def box(self) -> tuple[float, float, float, float]:
        """x1 y1 x2 y2 in 0..1 of the image."""
        half = self.size / 2
        return self.x - half, self.y - half, self.x + half, self.y + half


@dataclass(frozen=True)
class Scene:
    """An image before it is drawn.

    `pair` holds the indices of the two things that the family is about; it means nothing in the families absent and
    complete.
    """

    id: str
    family: Family
    things: tuple[Thing, ...]
    pair: tuple[int, int]
    ground: tuple[int, int, int]

    @property
    def first(self) -> Thing:
        """One of the pair; in the family size, the larger one."""
        return self.things[self.pair[0]]

    @property
    def second(self) -> Thing:
        """The other thing of the pair."""
        return self.things[self.pair[1]]


def gaps(a: Thing, b: Thing) -> tuple[float, float]:
    """Return the empty space between two boxes along x and along y; negative where they overlap on that axis."""
    reach = (a.size + b.size) / 2
    return abs(a.x - b.x) - reach, abs(a.y - b.y) - reach


def next_to(a: Thing, b: Thing) -> bool:
    """Return whether two things almost touch: level on one axis, hardly any space on the other."""
    across, down = gaps(a, b)
    return max(across, down) <= TOUCHING and min(across, down) < 0


def axis_of(a: Thing, b: Thing) -> Axis | None:
    """Return how two things stand to each other; None where neither axis is at least twice the other."""
    across, down = abs(a.x - b.x), abs(a.y - b.y)
    if across >= 2 * down:
        return "horizontal"
    return "vertical" if down >= 2 * across else None


def make_scene(split: str, index: int, seed: int = 0, families: Sequence[Family] = FAMILIES) -> Scene:
    """Return scene `index` of a split; the same for the same arguments on every machine.

    Families alternate, so that any count is divided evenly. Different splits or seeds share no random numbers.
    """
    identity = f"{split}-{seed}-{index:06d}"
    rng = random.Random(identity)
    family = families[index % len(families)]
    generate = _try_scene if family in FAMILIES else _try_kinds
    while True:
        scene = generate(rng, identity, family)
        if scene is not None:
            return scene


def make_scenes(split: str, count: int, seed: int = 0) -> Iterator[Scene]:
    """Return the first `count` scenes of a split."""
    return (make_scene(split, index, seed) for index in range(count))


def _try_scene(rng: random.Random, identity: str, family: Family) -> Scene | None:
    count = rng.randint(4, 7)
    shapes = rng.sample(SHAPES, count)
    colors = rng.sample(tuple(COLORS), count)
    sizes = [rng.uniform(0.06, 0.16) for _ in range(count)]
    if family == "size":
        shapes[1] = shapes[0]
        sizes[0] = rng.uniform(0.12, 0.18)
        sizes[1] = sizes[0] / rng.uniform(1.4, 2.2)
    if family == "bind":
        colors[1] = colors[0]
    centers: list[tuple[float, float]] = [_anywhere(rng, sizes[0])]
    second = _partner(rng, family, centers[0], sizes[0], sizes[1])
    if second is None:
        return None
    centers.append(second)
    if not _place_others(rng, centers, sizes):
        return None
    things = [
        Thing(shape, color, *center, size)
        for shape, color, center, size in zip(shapes, colors, centers, sizes, strict=True)
    ]
    return _in_random_order(rng, identity, family, things)


def _try_kinds(rng: random.Random, identity: str, family: Family) -> Scene | None:
    """Return a scene of a family whose captions depend on the kinds of the things only, none of them near another."""
    if family in ("absent", "complete"):
        shapes = [shape for shape in CHECKED if family == "complete" or rng.random() < 0.5]
        others = [shape for shape in SHAPES if shape not in CHECKED]
        shapes += rng.choices(others, k=NUM_ABSENT - len(shapes))
        colors, striped = rng.choices(tuple(COLORS), k=len(shapes)), [False] * len(shapes)
    else:
        others = [shape for shape in SHAPES if shape not in PARITY_SHAPES]
        shapes = [*PARITY_SHAPES, *rng.sample(others, rng.randint(2, 4))]
        colors = rng.choices(WARM + COOL, k=len(shapes))
        striped = [rng.random() < 0.5 for _ in shapes]
    tints = [tuple(rng.randint(-_MAX_TINT, _MAX_TINT) for _ in range(3)) for _ in shapes]
    sizes = [rng.uniform(0.06, 0.14) for _ in shapes]
    centers: list[tuple[float, float]] = []
    if not _place_others(rng, centers, sizes):
        return None
    columns = (shapes, colors, *zip(*centers, strict=True), sizes, striped, tints)
    things = [Thing(*thing) for thing in zip(*columns, strict=True)]
    return _in_random_order(rng, identity, family, things)


def _place_others(rng: random.Random, centers: list[tuple[float, float]], sizes: Sequence[float]) -> bool:
    """Append the centers that are missing, each far from all others; return False where one finds no room."""
    for size in sizes[len(centers) :]:
        for _ in range(40):
            center = _anywhere(rng, size)
            if all(_far(center, size, other, side) for other, side in zip(centers, sizes, strict=False)):
                centers.append(center)
                break
        else:
            return False
    return True


def _in_random_order(rng: random.Random, identity: str, family: Family, things: Sequence[Thing]) -> Scene:
    """Return the scene whose pair are the first two of `things`."""
    order = rng.sample(range(len(things)), len(things))
    ground = (rng.randint(225, 250), rng.randint(225, 250), rng.randint(225, 250))
    return Scene(identity, family, tuple(things[i] for i in order), (order.index(0), order.index(1)), ground)


def _anywhere(rng: random.Random, size: float) -> tuple[float, float]:
    margin = size / 2 + 0.01
    return rng.uniform(margin, 1 - margin), rng.uniform(margin, 1 - margin)


def _partner(
    rng: random.Random, family: Family, center: tuple[float, float], size: float, other_size: float
) -> tuple[float, float] | None:
    """Return the place of the second thing of a pair, or None where it is outside or too close."""
    if family == "size":
        other = _anywhere(rng, other_size)
        return other if _far(center, size, other, other_size) else None
    along_x = rng.random() < 0.5
    sign = rng.choice((-1, 1))
    if family == "near":
        along = sign * ((size + other_size) / 2 + rng.uniform(0.012, TOUCHING - 0.005))
        offset = rng.uniform(-0.25, 0.25) * min(size, other_size)
    else:
        along = sign * rng.uniform((size + other_size) / 2 + _APART, 0.8)
        offset = rng.uniform(-0.4, 0.4) * abs(along)
    x, y = (center[0] + along, center[1] + offset) if along_x else (center[0] + offset, center[1] + along)
    margin = other_size / 2 + 0.01
    inside = margin <= x <= 1 - margin and margin <= y <= 1 - margin
    return (x, y) if inside and math.hypot(along, offset) > 0 else None


def _far(a: tuple[float, float], a_size: float, b: tuple[float, float], b_size: float) -> bool:
    reach = (a_size + b_size) / 2 + _APART
    return abs(a[0] - b[0]) >= reach or abs(a[1] - b[1]) >= reach
