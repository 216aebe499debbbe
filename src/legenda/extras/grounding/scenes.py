"""Expressions about scenes: some that depend on boxes, and controls that depend on the kinds of things only."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from legenda.data.scenes.scene import Scene, Thing
from legenda.errors import DataError

ExpressionKind = Literal["near", "size", "plain"]

PER_SCENE = 3
"""Expressions of one scene: two about the pair of its family, except in the family bind, and controls."""
MOST_WORDS = 7
"""Words of the longest expression."""


@dataclass(frozen=True)
class SceneExpression:
    """Words that mean one thing of a scene."""

    text: str
    thing: Thing
    kind: ExpressionKind


def refer(scene: Scene) -> tuple[SceneExpression, ...]:
    """PER_SCENE expressions, always the same for a scene."""
    rng = random.Random(f"expressions-{scene.id}")
    first, second = scene.first, scene.second
    match scene.family:
        case "near":
            pairs = (first, second), (second, first)
            about = [SceneExpression(f"the thing next to the {a.color} {a.shape}", b, "near") for a, b in pairs]
        case "size":
            sizes = ("larger", first), ("smaller", second)
            about = [SceneExpression(f"the {word} {first.shape}", thing, "size") for word, thing in sizes]
        case "bind":
            about = []
        case _:
            raise DataError(
                f"there are no expressions about scenes of the family {scene.family}; choose near, size or bind"
            )
    controls = rng.sample(scene.things, PER_SCENE - len(about))
    return *about, *(_plain(rng, thing, scene) for thing in controls)


def _plain(rng: random.Random, thing: Thing, scene: Scene) -> SceneExpression:
    """Return the thing by its kind, or by that part of it which it shares with no other."""
    phrases = [f"the {thing.color} {thing.shape}"]
    if sum(other.shape == thing.shape for other in scene.things) == 1:
        phrases.append(f"the {thing.shape}")
    if sum(other.color == thing.color for other in scene.things) == 1:
        phrases.append(f"the {thing.color} thing")
    return SceneExpression(rng.choice(phrases), thing, "plain")
