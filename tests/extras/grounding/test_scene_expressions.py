"""An expression means one thing of its scene, which can be found from the words and the places of things."""

from dataclasses import replace

from legenda.data.scenes import Scene, make_scenes
from legenda.data.scenes.scene import Thing
from legenda.extras.grounding.data import PER_SCENE, refer

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
