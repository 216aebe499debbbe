"""Captions of scenes: references from a grammar, the statement that a caption makes, and its truth in the scene."""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from legenda.data.scenes.scene import (
    CHECKED,
    COLORS,
    PARITY_SHAPES,
    SHAPES,
    WARM,
    Axis,
    Scene,
    Thing,
    axis_of,
    next_to,
)

Kind = tuple[str, str]
"""Color and shape."""

_TRUTHS = ("pair", "axis", "size", "bind")
"""The scores of data sets with the families near, size and bind, besides truth."""
_KIND_TRUTHS = {"absent": ("present", "absent"), "complete": ("present",), "parity": ("parity",)}
"""The further scores of the other families."""

AXIS_WORDS: dict[Axis, str] = {"horizontal": "side by side", "vertical": "one above the other"}


class PairStatement(NamedTuple):
    """Two things are next to each other and, where the caption states it, are aligned along this axis."""

    first: Kind
    second: Kind
    axis: Axis | None

    def find_fault(self, scene: Scene) -> str:
        """Return why the statement is false of a scene; empty when it is true."""
        a, b = (_thing(kind, scene) for kind in (self.first, self.second))
        if a is None or b is None:
            return f"there is no {' '.join(self.first if a is None else self.second)}"
        if a == b:
            return f"the {' '.join(self.first)} is named twice"
        if not next_to(a, b):
            return "the two are not next to each other"
        return "" if self.axis in (None, axis_of(a, b)) else "they stand the other way"


class SizeStatement(NamedTuple):
    """The statement that of two things of a shape the one of color `larger` is larger; `smaller` may be None."""

    shape: str
    larger: str
    smaller: str | None

    def find_fault(self, scene: Scene) -> str:
        """Return why the statement is false of a scene; empty when it is true."""
        others = [thing for thing in scene.things if thing.shape == self.shape]
        if len(others) < 2:
            return f"there are not two {self.shape} shapes to compare"
        big = _thing((self.larger, self.shape), scene)
        if big is None:
            return f"there is no {self.larger} {self.shape}"
        others = [thing for thing in others if thing != big]
        if self.smaller is not None:
            small = _thing((self.smaller, self.shape), scene)
            if small is None or small == big:
                return f"there is no other, {self.smaller} {self.shape}"
            others = [small]
        smallest = all(big.size > other.size for other in others)
        return "" if smallest else f"the {self.larger} {self.shape} is the smaller one"


class BindStatement(NamedTuple):
    """The two things of this color are aligned along this axis; their shapes may be None."""

    color: str
    shapes: tuple[str, str] | None
    axis: Axis

    def find_fault(self, scene: Scene) -> str:
        """Return why the statement is false of a scene; empty when it is true."""
        of_color = [thing for thing in scene.things if thing.color == self.color]
        if len(of_color) != 2:
            return f"there are not two {self.color} things"
        if self.shapes is not None and {thing.shape for thing in of_color} != set(self.shapes):
            return f"the two {self.color} things have other shapes"
        return "" if self.axis == axis_of(*of_color) else "they stand the other way"


class AbsentStatement(NamedTuple):
    """The color of the thing of each of CHECKED shapes; None where no thing has that shape."""

    colors: tuple[str | None, ...]

    def find_fault(self, scene: Scene) -> str:
        """Return why the statement is false of a scene; empty when it is true."""
        for shape, named, color in zip(CHECKED, self.colors, _checked_colors(scene), strict=True):
            if named != color:
                return f"there is {'no' if color is None else f'a {color}'} {shape}"
        return ""


class ParityStatement(NamedTuple):
    """Whether each thing of PARITY_SHAPES is odd: either warm or striped, but not both."""

    odd: tuple[bool, ...]

    def find_fault(self, scene: Scene) -> str:
        """Return why the statement is false of a scene; empty when it is true."""
        for shape, named, odd in zip(PARITY_SHAPES, self.odd, _odd(scene), strict=True):
            if named != odd:
                return f"the {shape} is {'not there' if odd is None else 'odd' if odd else 'even'}"
        return ""


Statement = PairStatement | SizeStatement | BindStatement | AbsentStatement | ParityStatement


def references(scene: Scene) -> tuple[str, ...]:
    """Return five true captions of a scene, always the same for it; one in the families absent, complete and parity."""
    rng = random.Random(f"language-{scene.id}")
    match scene.family:
        case "near":
            captions = _near(rng, scene)
        case "size":
            captions = _size(scene)
        case "bind":
            captions = _bind(rng, scene)
        case "absent" | "complete":
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
    things = [of_shape(scene, shape) for shape in CHECKED]
    return " and ".join(f"{t.color if t else 'no'} {shape}" for t, shape in zip(things, CHECKED, strict=True))


def _parity(scene: Scene) -> str:
    things = [of_shape(scene, shape) for shape in PARITY_SHAPES]
    return " and ".join(f"{'odd' if is_odd(thing) else 'even'} {thing.shape}" for thing in things if thing)


_COLOR = f"({'|'.join(COLORS)})"
_SHAPE = f"({'|'.join(SHAPES)})"
_THING = rf"an? {_COLOR} {_SHAPE}"
_AXIS = f"({'|'.join(AXIS_WORDS.values())})"
_AXES: dict[str, Axis] = {words: axis for axis, words in AXIS_WORDS.items()}


def _compared(first: str, shape: str, word: str, second: str, again: str | None) -> SizeStatement | None:
    if again not in (None, shape):
        return None
    return SizeStatement(shape, *((first, second) if word == "larger" else (second, first)))


def _named(color: str, a: str, again: str, b: str, axis: str) -> BindStatement | None:
    return BindStatement(color, (a, b), _AXES[axis]) if again == color else None


_GRAMMAR: dict[str, Callable[..., Statement | None]] = {
    f"{_THING} (?:next to|close to) {_THING}": lambda a, b, c, d: PairStatement((a, b), (c, d), None),
    f"{_THING} and {_THING} {_AXIS}": lambda a, b, c, d, axis: PairStatement((a, b), (c, d), _AXES[axis]),
    f"the {_COLOR} {_SHAPE} is (larger|smaller) than the {_COLOR} (?:one|{_SHAPE})": _compared,
    f"the larger {_SHAPE} is {_COLOR}": lambda shape, color: SizeStatement(shape, color, None),
    f"the {_COLOR} {_SHAPE} is the larger one": lambda color, shape: SizeStatement(shape, color, None),
    f"(?:(?:the )?two|both) {_COLOR} things (?:are |stand |){_AXIS}": (
        lambda color, axis: BindStatement(color, None, _AXES[axis])
    ),
    f"the {_COLOR} {_SHAPE} and the {_COLOR} {_SHAPE} are {_AXIS}": _named,
    " and ".join(f"({'|'.join(COLORS)}|no) {shape}" for shape in CHECKED): (
        lambda *words: AbsentStatement(tuple(None if word == "no" else word for word in words))
    ),
    " and ".join(f"(odd|even) {shape}" for shape in PARITY_SHAPES): (
        lambda *words: ParityStatement(tuple(word == "odd" for word in words))
    ),
}
"""Each sentence of the grammar, and what it states."""


def read_statement(caption: str) -> Statement | None:
    """Return the statement of a caption, or None when it is not a sentence of the grammar."""
    caption = " ".join(caption.lower().split()).removesuffix(".").strip()
    for sentence, state in _GRAMMAR.items():
        if parts := re.fullmatch(sentence, caption):
            return state(*parts.groups())
    return None


@dataclass(frozen=True)
class Verdict:
    """Whether a caption is true, why not, and which parts of what its family is about are right.

    pair: it names the two that are next to each other; axis: it states their alignment correctly, None where it
    does not state it; size, bind: the whole statement is true. None in the other families.
    present, absent: of CHECKED shapes that are there, and of those that are not, the share that the caption is right
    about; None where there are none. parity: the share of the two things whose word is right.
    """

    true: bool
    reason: str
    pair: bool | None = None
    axis: bool | None = None
    size: bool | None = None
    bind: bool | None = None
    present: float | None = None
    absent: float | None = None
    parity: float | None = None


def check_caption(caption: str, scene: Scene) -> Verdict:
    """Return the verdict on one caption; every sentence outside the grammar is false."""
    statement = read_statement(caption)
    reason = "not a sentence of the grammar" if statement is None else statement.find_fault(scene)
    true = not reason
    match scene.family:
        case "near":
            if not isinstance(statement, PairStatement):
                return Verdict(true, reason, pair=False)
            named = {statement.first, statement.second} == {scene.first.kind, scene.second.kind}
            axis = None if statement.axis is None else statement.axis == axis_of(scene.first, scene.second)
            return Verdict(true, reason, pair=named, axis=axis)
        case "size":
            return Verdict(true, reason, size=true and isinstance(statement, SizeStatement))
        case "bind":
            return Verdict(true, reason, bind=true and isinstance(statement, BindStatement))
        case "absent" | "complete":
            colors = _checked_colors(scene)
            named = statement.colors if isinstance(statement, AbsentStatement) else ("",) * len(colors)
            pairs = list(zip(colors, named, strict=True))
            present, absent = ([a == b for a, b in pairs if (a is None) == gone] for gone in (False, True))
            return Verdict(true, reason, present=_share(present), absent=_share(absent))
        case "parity":
            odd = _odd(scene)
            words = statement.odd if isinstance(statement, ParityStatement) else (None, None)
            return Verdict(true, reason, parity=_share([a == b for a, b in zip(odd, words, strict=True)]))


def truth_scores(captions: Mapping[str, str], scenes: Mapping[str, Scene]) -> dict[str, float | None]:
    """Return the shares of true captions: truth over all scenes, each other score over the scenes of its family.

    captions: by the ids of the scenes. axis counts the captions with an axis; a share of nothing is None. Scores of the
    families absent, complete and parity are there where a scene is of that family, the others where one is of another.
    """
    verdicts = [check_caption(caption, scenes[identity]) for identity, caption in captions.items()]
    scores: dict[str, float | None] = {"truth": _share([verdict.true for verdict in verdicts])}
    families = {scene.family for scene in scenes.values()}
    names = [name for family, names in _KIND_TRUTHS.items() if family in families for name in names]
    for name in (*(_TRUTHS if families - _KIND_TRUTHS.keys() or not families else ()), *names):
        scores[name] = _share([value for v in verdicts if (value := getattr(v, name)) is not None])
    return scores


def _share(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _checked_colors(scene: Scene) -> tuple[str | None, ...]:
    return tuple(thing.color if thing else None for thing in (of_shape(scene, shape) for shape in CHECKED))


def _odd(scene: Scene) -> tuple[bool | None, ...]:
    return tuple(is_odd(thing) if thing else None for thing in (of_shape(scene, shape) for shape in PARITY_SHAPES))


def _thing(kind: Kind, scene: Scene) -> Thing | None:
    return next((thing for thing in scene.things if thing.kind == kind), None)
