"""Questions about scenes: some that depend on boxes, and controls that depend on the kinds of things only.

    near, size, stand            which is next to which, which is larger, how two are aligned: not in the features
    count, existence, color, shape      the controls

A model that cannot read boxes can only guess the first three among the kinds that a scene shows.
"""

import random
from dataclasses import dataclass
from typing import Literal

from legenda.data.scenes.language import AXIS_WORDS, shuffled_pair
from legenda.data.scenes.scene import COLORS, SHAPES, Axis, Scene, Thing, axis_of
from legenda.errors import DataError

QuestionType = Literal["near", "size", "stand", "count", "existence", "color", "shape"]

PER_SCENE = 4
"""Questions of one scene: three about what its family is about, one control."""
MOST_WORDS = 10
"""Words of the longest question."""


@dataclass(frozen=True)
class SceneQuestion:
    """A question about a scene and its one answer, in lower case with digits for numbers."""

    text: str
    answer: str
    question_type: QuestionType

    @property
    def answer_type(self) -> str:
        """As VQA sorts answers: yes/no, number or other."""
        if self.answer in ("yes", "no"):
            return "yes/no"
        return "number" if self.answer.isdecimal() else "other"


def ask(scene: Scene) -> tuple[SceneQuestion, ...]:
    """PER_SCENE questions about a scene, always the same for it."""
    rng = random.Random(f"questions-{scene.id}")
    match scene.family:
        case "near":
            about = _near(rng, scene)
        case "size":
            about = _size(rng, scene)
        case "bind":
            about = _stand(rng, scene)
        case _:
            raise DataError(
                f"there are no questions about scenes of the family {scene.family}; choose near, size or bind"
            )
    return *about, _control(rng, scene)


def _near(rng: random.Random, scene: Scene) -> list[SceneQuestion]:
    """Return questions about the neighbor, its color or shape, and whether it is a certain thing."""
    thing, other = shuffled_pair(rng, scene)
    kind = SceneQuestion(f"what is next to the {_named(thing)}?", _named(other), "near")
    thing, other = shuffled_pair(rng, scene)
    if rng.random() < 0.5:
        part = SceneQuestion(f"what color is the thing next to the {_named(thing)}?", other.color, "near")
    else:
        part = SceneQuestion(f"what shape is the thing next to the {_named(thing)}?", other.shape, "near")
    thing, other = shuffled_pair(rng, scene)
    true = rng.random() < 0.5
    asked = other if true else rng.choice([t for t in scene.things if t not in (thing, other)])
    words = [_named(thing), _named(asked)]
    rng.shuffle(words)
    whether = SceneQuestion(f"is the {words[0]} next to the {words[1]}?", _yes(true), "near")
    return [kind, part, whether]


def _size(rng: random.Random, scene: Scene) -> list[SceneQuestion]:
    large, small, shape = scene.first, scene.second, scene.first.shape
    first, second = shuffled_pair(rng, scene)
    word = rng.choice(("larger", "smaller"))
    true = (first == large) == (word == "larger")
    return [
        SceneQuestion(f"what color is the larger {shape}?", large.color, "size"),
        SceneQuestion(f"what color is the smaller {shape}?", small.color, "size"),
        SceneQuestion(f"is the {_named(first)} {word} than the {_named(second)}?", _yes(true), "size"),
    ]


def _stand(rng: random.Random, scene: Scene) -> list[SceneQuestion]:
    axis, color = axis_of(scene.first, scene.second), scene.first.color
    assert axis is not None, scene.id
    first, second = shuffled_pair(rng, scene)
    asked: Axis = rng.choice(("horizontal", "vertical"))
    return [
        SceneQuestion(f"how do the two {color} things stand?", AXIS_WORDS[axis], "stand"),
        SceneQuestion(f"how do the {first.shape} and the {second.shape} stand?", AXIS_WORDS[axis], "stand"),
        SceneQuestion(f"are the two {color} things {AXIS_WORDS[asked]}?", _yes(asked == axis), "stand"),
    ]


def _control(rng: random.Random, scene: Scene) -> SceneQuestion:
    """Return a question whose answer depends on the kinds of things only."""
    match rng.randrange(4):
        case 0:
            return SceneQuestion("how many things are there?", str(len(scene.things)), "count")
        case 1:
            kinds = {thing.kind for thing in scene.things}
            there = rng.choice(sorted(kinds))
            missing = rng.choice([(c, s) for c in COLORS for s in SHAPES if (c, s) not in kinds])
            true = rng.random() < 0.5
            return SceneQuestion(f"is there a {' '.join(there if true else missing)}?", _yes(true), "existence")
        case 2:
            thing = _only(rng, scene, "shape")
            return SceneQuestion(f"what color is the {thing.shape}?", thing.color, "color")
        case _:
            thing = _only(rng, scene, "color")
            return SceneQuestion(f"what shape is the {thing.color} thing?", thing.shape, "shape")


def _only(rng: random.Random, scene: Scene, part: Literal["color", "shape"]) -> Thing:
    """Return a thing whose color, or shape, is unique in the scene."""
    parts = [getattr(thing, part) for thing in scene.things]
    return rng.choice([thing for thing in scene.things if parts.count(getattr(thing, part)) == 1])


def _named(thing: Thing) -> str:
    return f"{thing.color} {thing.shape}"


def _yes(true: bool) -> str:
    return "yes" if true else "no"
