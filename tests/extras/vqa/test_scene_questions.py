"""Questions about scenes have one answer, which their things decide, and features alone do not give it away."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np

from legenda.data.scenes import Scene, draw_scene, make_scenes
from legenda.data.scenes.pixels import find_things
from legenda.data.scenes.scene import Thing
from legenda.extras.vqa.data import ask

SCENES = tuple(make_scenes("train", 900, seed=11))
ASKED = [(scene, question) for scene in SCENES for question in ask(scene)]


def touch(a: Thing, b: Thing) -> bool:
    """Less than a twentieth of the image lies between two boxes, computed from their corners."""
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = a.box, b.box
    across, down = max(ax1, bx1) - min(ax2, bx2), max(ay1, by1) - min(ay2, by2)
    return across < 0.05 and down < 0.05


def called(scene: Scene, words: str) -> Thing:
    """The one thing of this color and shape, or of this shape or color."""
    parts = set(words.split()) - {"thing"}
    (thing,) = [thing for thing in scene.things if parts <= {thing.color, thing.shape}]
    return thing


def neighbor(scene: Scene, words: str) -> Thing:
    (found,) = [other for other in scene.things if other != called(scene, words) and touch(called(scene, words), other)]
    return found


def standing(a: Thing, b: Thing) -> str:
    return "side by side" if abs(a.x - b.x) > abs(a.y - b.y) else "one above the other"


def colored(scene: Scene, color: str) -> list[Thing]:
    return [thing for thing in scene.things if thing.color == color]


def answer(text: str, scene: Scene) -> str:
    """What is true of the scene, worked out from the words of the question and the things' places only."""
    if found := re.fullmatch(r"what is next to the (.+)\?", text):
        other = neighbor(scene, found[1])
        return f"{other.color} {other.shape}"
    if found := re.fullmatch(r"what (color|shape) is the thing next to the (.+)\?", text):
        return getattr(neighbor(scene, found[2]), found[1])
    if found := re.fullmatch(r"is the (.+) next to the (.+)\?", text):
        return "yes" if touch(called(scene, found[1]), called(scene, found[2])) else "no"
    if found := re.fullmatch(r"what color is the (larger|smaller) (.+)\?", text):
        same = sorted((thing for thing in scene.things if thing.shape == found[2]), key=lambda thing: thing.size)
        assert len(same) == 2
        return same[found[1] == "larger"].color
    if found := re.fullmatch(r"is the (.+) (larger|smaller) than the (.+)\?", text):
        difference = called(scene, found[1]).size - called(scene, found[3]).size
        return "yes" if (difference > 0) == (found[2] == "larger") else "no"
    if found := re.fullmatch(r"how do the two (.+) things stand\?", text):
        return standing(*colored(scene, found[1]))
    if found := re.fullmatch(r"how do the (.+) and the (.+) stand\?", text):
        return standing(called(scene, found[1]), called(scene, found[2]))
    if found := re.fullmatch(r"are the two (\S+) things (.+)\?", text):
        return "yes" if standing(*colored(scene, found[1])) == found[2] else "no"
    if text == "how many things are there?":
        return str(len(scene.things))
    if found := re.fullmatch(r"is there a (.+) (.+)\?", text):
        return "yes" if any(thing.kind == (found[1], found[2]) for thing in scene.things) else "no"
    if found := re.fullmatch(r"what (color|shape) is the (.+)\?", text):
        return getattr(called(scene, found[2]), found[1])
    raise AssertionError(f"no such question is known: {text}")


def test_every_answer_is_true_of_its_scene():
    for scene, question in ASKED:
        assert question.answer == answer(question.text, scene), (scene.id, question.text)


def turned(scene: Scene) -> Scene:
    """The same kinds, each at the place and of the size of the next one."""
    order = [*scene.things, scene.things[0]]
    return replace(scene, things=tuple(replace(a, x=b.x, y=b.y, size=b.size) for a, b in pairwise(order)))


def test_scenes_with_equal_features_have_different_answers():
    """Features are the same to the last digit, as a set, when things change places; what is near changes with them."""
    changed = 0
    for scene in [scene for scene in SCENES if scene.family == "near"][:40]:
        other = turned(scene)
        before, after = (find_things(draw_scene(each))[0] for each in (scene, other))
        assert np.array_equal(*(features[np.lexsort(features.T)] for features in (before, after)))
        question = ask(scene)[0]
        kind = question.text.removeprefix("what is next to the ").removesuffix("?")
        known = called(other, kind)
        partners = [" ".join(thing.kind) for thing in other.things if thing != known and touch(known, thing)]
        changed += question.answer not in partners
    assert changed == 40
