"""Captions of scenes: references from a grammar, and the parser of the claim of a caption."""

import random
import re
from dataclasses import dataclass

from legenda.data.scenes.world import (
    CHECKED,
    COLORS,
    PARITY_SHAPES,
    SHAPES,
    WARM,
    Axis,
    Scene,
    Thing,
    axis_of,
)

Kind = tuple[str, str]

AXIS_WORDS: dict[Axis, str] = {"horizontal": "side by side", "vertical": "one above the other"}


@dataclass(frozen=True)
class PairClaim:
    """Two things are next to each other and, where the caption states it, are aligned along this axis."""

    first: Kind
    second: Kind
    axis: Axis | None


@dataclass(frozen=True)
class SizeClaim:
    """Of the things of this shape, the one of color `larger` is larger; `smaller` may be None."""

    shape: str
    larger: str
    smaller: str | None


@dataclass(frozen=True)
class BindClaim:
    """The two things of this color are aligned along this axis; their shapes may be None."""

    color: str
    shapes: tuple[str, str] | None
    axis: Axis


@dataclass(frozen=True)
class AbsentClaim:
    """The color of the thing of each of CHECKED shapes; None where no thing has that shape."""

    colors: tuple[str | None, ...]


@dataclass(frozen=True)
class ParityClaim:
    """Whether each thing of PARITY_SHAPES is odd: either warm or striped, but not both."""

    odd: tuple[bool, ...]


Claim = PairClaim | SizeClaim | BindClaim | AbsentClaim | ParityClaim


def references(scene: Scene) -> tuple[str, ...]:
    """Return five true captions of a scene, always the same for it; one in the families absent and parity."""
    rng = random.Random(f"language-{scene.id}")
    match scene.family:
        case "near":
            captions = _near(rng, scene)
        case "size":
            captions = _size(scene)
        case "bind":
            captions = _bind(rng, scene)
        case "absent":
            captions = [_absent(scene)]
        case "parity":
            captions = [_parity(scene)]
    rng.shuffle(captions)
    return tuple(captions)


def _a(thing: Thing) -> str:
    return f"{'an' if thing.color[0] in 'aeiou' else 'a'} {thing.color} {thing.shape}"


def shuffled_pair(rng: random.Random, scene: Scene) -> tuple[Thing, Thing]:
    """Return the pair that the family is about, in random order."""
    return (scene.first, scene.second) if rng.random() < 0.5 else (scene.second, scene.first)


def _stands(scene: Scene) -> str:
    axis = axis_of(scene.first, scene.second)
    assert axis is not None, scene.id
    return AXIS_WORDS[axis]


def _near(rng: random.Random, scene: Scene) -> list[str]:
    pairs = [shuffled_pair(rng, scene) for _ in range(5)]
    plain = [f"{_a(a)} {words} {_a(b)}" for words, (a, b) in zip(("next to", "close to"), pairs[:2], strict=True)]
    return plain + [f"{_a(a)} and {_a(b)} {_stands(scene)}" for a, b in pairs[2:]]


def _size(scene: Scene) -> list[str]:
    large, small, shape = scene.first.color, scene.second.color, scene.first.shape
    return [
        f"the {large} {shape} is larger than the {small} {shape}",
        f"the {large} {shape} is larger than the {small} one",
        f"the {small} {shape} is smaller than the {large} {shape}",
        f"the larger {shape} is {large}",
        f"the {large} {shape} is the larger one",
    ]


def _bind(rng: random.Random, scene: Scene) -> list[str]:
    color, stand = scene.first.color, _stands(scene)
    a, b = shuffled_pair(rng, scene)
    return [
        f"the two {color} things are {stand}",
        f"two {color} things {stand}",
        f"both {color} things stand {stand}",
        f"the {color} {a.shape} and the {color} {b.shape} are {stand}",
        f"the two {color} things stand {stand}",
    ]


def of_shape(scene: Scene, shape: str) -> Thing | None:
    """Return the first thing of a shape, None where there is none."""
    return next((thing for thing in scene.things if thing.shape == shape), None)


def is_odd(thing: Thing) -> bool:
    """Return whether a thing is either warm or striped, but not both."""
    return (thing.color in WARM) != thing.striped


def _absent(scene: Scene) -> str:
    found = [of_shape(scene, shape) for shape in CHECKED]
    return " and ".join(f"{t.color if t else 'no'} {shape}" for t, shape in zip(found, CHECKED, strict=True))


def _parity(scene: Scene) -> str:
    found = [of_shape(scene, shape) for shape in PARITY_SHAPES]
    return " and ".join(f"{'odd' if is_odd(thing) else 'even'} {thing.shape}" for thing in found if thing)


_COLOR = f"({'|'.join(COLORS)})"
_SHAPE = f"({'|'.join(SHAPES)})"
_THING = rf"an? {_COLOR} {_SHAPE}"
_AXIS = f"({'|'.join(AXIS_WORDS.values())})"
_AXES: dict[str, Axis] = {words: axis for axis, words in AXIS_WORDS.items()}

_PAIR = re.compile(rf"{_THING} (?:next to|close to) {_THING}")
_PAIR_AXIS = re.compile(rf"{_THING} and {_THING} {_AXIS}")
_LARGER = re.compile(rf"the {_COLOR} {_SHAPE} is larger than the {_COLOR} (?:one|{_SHAPE})")
_SMALLER = re.compile(rf"the {_COLOR} {_SHAPE} is smaller than the {_COLOR} (?:one|{_SHAPE})")
_LARGER_IS = re.compile(rf"the larger {_SHAPE} is {_COLOR}")
_IS_LARGER = re.compile(rf"the {_COLOR} {_SHAPE} is the larger one")
_BOTH = re.compile(rf"(?:(?:the )?two|both) {_COLOR} things (?:are |stand |){_AXIS}")
_BOTH_NAMED = re.compile(rf"the {_COLOR} {_SHAPE} and the {_COLOR} {_SHAPE} are {_AXIS}")
_ABSENT = re.compile(" and ".join(rf"({'|'.join(COLORS)}|no) {shape}" for shape in CHECKED))
_PARITY = re.compile(" and ".join(f"(odd|even) {shape}" for shape in PARITY_SHAPES))


def read_claim(caption: str) -> Claim | None:
    """Return the claim of a caption, or None when it is not a sentence of the grammar."""
    caption = " ".join(caption.lower().split()).removesuffix(".").strip()
    if found := _PAIR.fullmatch(caption):
        a, b, c, d = found.groups()
        return PairClaim((a, b), (c, d), None)
    if found := _PAIR_AXIS.fullmatch(caption):
        a, b, c, d, axis = found.groups()
        return PairClaim((a, b), (c, d), _AXES[axis])
    for pattern, larger_first in ((_LARGER, True), (_SMALLER, False)):
        if found := pattern.fullmatch(caption):
            one, shape, other, again = found.groups()
            if again not in (None, shape):
                return None
            return SizeClaim(shape, *((one, other) if larger_first else (other, one)))
    if found := _LARGER_IS.fullmatch(caption):
        return SizeClaim(found[1], found[2], None)
    if found := _IS_LARGER.fullmatch(caption):
        return SizeClaim(found[2], found[1], None)
    if found := _BOTH.fullmatch(caption):
        return BindClaim(found[1], None, _AXES[found[2]])
    if found := _BOTH_NAMED.fullmatch(caption):
        color, a, again, b, axis = found.groups()
        return BindClaim(color, (a, b), _AXES[axis]) if again == color else None
    if found := _ABSENT.fullmatch(caption):
        return AbsentClaim(tuple(None if word == "no" else word for word in found.groups()))
    if found := _PARITY.fullmatch(caption):
        return ParityClaim(tuple(word == "odd" for word in found.groups()))
    return None
