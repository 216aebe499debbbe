"""An expression means one thing of its scene, which can be found from the words and the places of things."""

import random
from dataclasses import replace

import numpy as np
import pytest

from legenda.data.scenes import Scene, Thing, make_scenes
from legenda.data.scenes.expressions import PER_SCENE, SceneExpression, refer

SCENES = tuple(make_scenes("val", 600, seed=3))
REFERRED = [(scene, expression) for scene in SCENES for expression in refer(scene)]


def space(a: Thing, b: Thing) -> float:
    """The wider of the gaps between two boxes along x and y."""
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = a.box, b.box
    return max(max(ax1, bx1) - min(ax2, bx2), max(ay1, by1) - min(ay2, by2))


def meant(text: str, scene: Scene) -> Thing:
    """The thing that the words mean, worked out from them and the things only."""
    words = text.split()
    if text.startswith("the thing next to the "):
        (known,) = [thing for thing in scene.things if list(thing.kind) == words[-2:]]
        return min((thing for thing in scene.things if thing != known), key=lambda thing: space(thing, known))
    if words[1] in ("larger", "smaller"):
        small, large = sorted((t for t in scene.things if t.shape == words[2]), key=lambda thing: thing.size)
        return large if words[1] == "larger" else small
    parts = set(words[1:]) - {"thing"}
    (found,) = [thing for thing in scene.things if parts <= {thing.color, thing.shape}]
    return found


def test_every_expression_means_its_thing():
    for scene, expression in REFERRED:
        assert meant(expression.text, scene) == expression.thing, (scene.id, expression.text)


def test_every_scene_has_the_expressions_of_its_family():
    kinds = {"near": ["near", "near", "plain"], "size": ["size", "size", "plain"], "bind": ["plain"] * 3}
    for scene in SCENES:
        found = refer(scene)
        assert [expression.kind for expression in found] == kinds[scene.family]
        assert len(found) == PER_SCENE == 3
        assert found == refer(replace(scene))
        assert len({expression.text for expression in found}) == 3


def possible(scene: Scene, expression: SceneExpression) -> list[Thing]:
    """The things that the expression could mean as far as kinds tell."""
    words = expression.text.split()
    if expression.kind == "near":
        return [thing for thing in scene.things if list(thing.kind) != words[-2:]]
    if expression.kind == "size":
        return [thing for thing in scene.things if thing.shape == words[-1]]
    return [expression.thing]


@pytest.mark.parametrize(("kind", "mean"), [("near", 0.23), ("size", 0.5), ("plain", 1.0)])
def test_chance_is_what_guessing_among_the_kinds_gives(kind, mean):
    rng = random.Random(1)
    hits, chances = [], []
    for scene, expression in REFERRED:
        if expression.kind == kind:
            among = possible(scene, expression)
            assert expression.chance == pytest.approx(1 / len(among))
            hits.append(rng.choice(among) == expression.thing)
            chances.append(expression.chance)
    deviation = np.sqrt(sum(chance * (1 - chance) for chance in chances)) / len(hits)
    assert len(hits) >= 400
    assert abs(np.mean(hits) - np.mean(chances)) <= 4 * deviation
    assert np.mean(chances) == pytest.approx(mean, abs=0.015)
