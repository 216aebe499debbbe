"""Truth of captions, computed from the scene."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from legenda.data.scenes.language import (
    AbsentClaim,
    BindClaim,
    Claim,
    PairClaim,
    ParityClaim,
    SizeClaim,
    is_odd,
    of_shape,
    read_claim,
)
from legenda.data.scenes.world import CHECKED, PARITY_SHAPES, Axis, Scene, Thing, axis_of, next_to

TRUTHS = ("truth", "pair", "axis", "size", "bind")
"""The scores of data sets with the families near, size and bind."""
KIND_TRUTHS = {"absent": ("present", "absent"), "parity": ("parity",)}
"""The further scores of the other families."""


@dataclass(frozen=True)
class Verdict:
    """Return whether a caption is true, why not, and what is right of the one thing that its family is about.

    pair: it names the two that are next to each other; axis: it states their alignment correctly, None where it
    does not state it; size, bind: the whole claim is true. None in the other families.
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
    claim = read_claim(caption)
    reason = "not a sentence of the grammar" if claim is None else _find_fault(claim, scene)
    true = not reason
    match scene.family:
        case "near":
            pair = claim if isinstance(claim, PairClaim) else None
            named = pair is not None and {pair.first, pair.second} == {scene.first.kind, scene.second.kind}
            claimed = pair.axis if pair is not None else None
            axis = None if claimed is None else claimed == axis_of(scene.first, scene.second)
            return Verdict(true, reason, pair=named, axis=axis)
        case "size":
            return Verdict(true, reason, size=true and isinstance(claim, SizeClaim))
        case "bind":
            return Verdict(true, reason, bind=true and isinstance(claim, BindClaim))
        case "absent":
            colors = _checked_colors(scene)
            named = claim.colors if isinstance(claim, AbsentClaim) else ("",) * len(colors)
            right = list(zip(colors, (a == b for a, b in zip(colors, named, strict=True)), strict=True))
            present, absent = ([ok for color, ok in right if (color is None) == gone] for gone in (False, True))
            return Verdict(true, reason, present=_share(present), absent=_share(absent))
        case "parity":
            odd = _odd(scene)
            words = claim.odd if isinstance(claim, ParityClaim) else (None, None)
            return Verdict(true, reason, parity=_share([a == b for a, b in zip(odd, words, strict=True)]))


def truth_scores(captions: Mapping[str, str], scenes: Mapping[str, Scene]) -> dict[str, float | None]:
    """Shares of true captions: truth over all scenes, the other scores over those of their families.

    Keyed by the ids of the scenes. axis counts the captions with an axis; a share of nothing is None. Scores of the
    families absent and parity are there where a scene is of that family, the others where one is of another family.
    """
    verdicts = [check_caption(caption, scenes[identity]) for identity, caption in captions.items()]
    scores: dict[str, float | None] = {"truth": _share([verdict.true for verdict in verdicts])}
    families = {scene.family for scene in scenes.values()}
    names = [name for family, names in KIND_TRUTHS.items() if family in families for name in names]
    for name in (*(TRUTHS[1:] if families - KIND_TRUTHS.keys() or not families else ()), *names):
        scores[name] = _share([value for v in verdicts if (value := getattr(v, name)) is not None])
    return scores


def _share(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _find_fault(claim: Claim, scene: Scene) -> str:
    """Why a claim is false of a scene; empty when it is true."""
    match claim:
        case PairClaim(first, second, axis):
            return _find_pair_fault(first, second, axis, scene)
        case SizeClaim(shape, larger, smaller):
            return _find_size_fault(shape, larger, smaller, scene)
        case BindClaim(color, shapes, axis):
            return _find_bind_fault(color, shapes, axis, scene)
        case AbsentClaim(colors):
            pairs = zip(CHECKED, colors, _checked_colors(scene), strict=True)
            wrong = [
                f"there is {'no' if color is None else f'a {color}'} {shape}" for shape, c, color in pairs if c != color
            ]
            return wrong[0] if wrong else ""
        case ParityClaim(odd):
            pairs = zip(PARITY_SHAPES, odd, _odd(scene), strict=True)
            return next((f"the {shape} is {_PARITIES[true]}" for shape, word, true in pairs if word != true), "")


_PARITIES = {True: "odd", False: "even", None: "not there"}


def _checked_colors(scene: Scene) -> tuple[str | None, ...]:
    return tuple(thing.color if thing else None for thing in (of_shape(scene, shape) for shape in CHECKED))


def _odd(scene: Scene) -> tuple[bool | None, ...]:
    return tuple(is_odd(thing) if thing else None for thing in (of_shape(scene, shape) for shape in PARITY_SHAPES))


def _find_pair_fault(first: tuple[str, str], second: tuple[str, str], axis: Axis | None, scene: Scene) -> str:
    things = [_thing(kind, scene) for kind in (first, second)]
    for kind, thing in zip((first, second), things, strict=True):
        if thing is None:
            return f"there is no {' '.join(kind)}"
    a, b = things
    assert a is not None
    assert b is not None
    if a == b:
        return f"the {' '.join(first)} is named twice"
    if not next_to(a, b):
        return "the two are not next to each other"
    return "" if axis in (None, axis_of(a, b)) else "they stand the other way"


def _find_size_fault(shape: str, larger: str, smaller: str | None, scene: Scene) -> str:
    of_shape = [thing for thing in scene.things if thing.shape == shape]
    if len(of_shape) < 2:
        return f"there are not two {shape} shapes to compare"
    big = _thing((larger, shape), scene)
    if big is None:
        return f"there is no {larger} {shape}"
    others = [thing for thing in of_shape if thing != big]
    if smaller is not None:
        small = _thing((smaller, shape), scene)
        if small is None or small == big:
            return f"there is no other, {smaller} {shape}"
        others = [small]
    return "" if all(big.size > other.size for other in others) else f"the {larger} {shape} is the smaller one"


def _find_bind_fault(color: str, shapes: tuple[str, str] | None, axis: Axis, scene: Scene) -> str:
    of_color = [thing for thing in scene.things if thing.color == color]
    if len(of_color) != 2:
        return f"there are not two {color} things"
    if shapes is not None and {thing.shape for thing in of_color} != set(shapes):
        return f"the two {color} things have other shapes"
    return "" if axis == axis_of(*of_color) else "they stand the other way"


def _thing(kind: tuple[str, str], scene: Scene) -> Thing | None:
    return next((thing for thing in scene.things if thing.kind == kind), None)
