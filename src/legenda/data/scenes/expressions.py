"""Expressions that refer to one thing of a scene: some that depend on boxes, and controls that depend on its kind.

near     the thing next to the red circle
size     the larger circle, the smaller circle
plain    the red circle, the circle, the red thing: the controls
"""

import random
from dataclasses import dataclass
from typing import Literal

from legenda.data.scenes.world import Scene, Thing
from legenda.errors import DataError

ExpressionKind = Literal["near", "size", "plain"]

PER_SCENE = 3
"""Expressions of one scene: two about the pair of its family, except in the family bind, and controls."""
MOST_WORDS = 7
"""Words of the longest expression."""


@dataclass(frozen=True)
class SceneExpression:
    """Words that mean one thing of a scene.

    chance: how often one finds it who knows the things' kinds but not their boxes, and guesses as well as one can.
    """

    text: str
    thing: Thing
    kind: ExpressionKind
    chance: float


def refer(scene: Scene) -> tuple[SceneExpression, ...]:
    """PER_SCENE expressions, always the same for a scene."""
    rng = random.Random(f"expressions-{scene.id}")
    one, other = scene.first, scene.second
    match scene.family:
        case "near":
            among = 1 / (len(scene.things) - 1)  # any of the others might be the one
            about = [
                SceneExpression(f"the thing next to the {a.color} {a.shape}", b, "near", among)
                for a, b in ((one, other), (other, one))
            ]
        case "size":
            about = [
                SceneExpression(f"the {word} {one.shape}", thing, "size", 0.5)
                for word, thing in (("larger", one), ("smaller", other))
            ]
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
    texts = [f"the {thing.color} {thing.shape}"]
    if sum(other.shape == thing.shape for other in scene.things) == 1:
        texts.append(f"the {thing.shape}")
    if sum(other.color == thing.color for other in scene.things) == 1:
        texts.append(f"the {thing.color} thing")
    return SceneExpression(rng.choice(texts), thing, "plain", 1.0)
