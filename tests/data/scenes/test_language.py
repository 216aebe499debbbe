"""References are true of their scenes, and captions with one error are false for that error."""

import pytest

from legenda.data.scenes import Scene, check_caption, make_scenes, references
from legenda.data.scenes.language import read_statement

SCENES = tuple(make_scenes("val", 600, seed=3))
WAYS = {"horizontal": "side by side", "vertical": "one above the other"}


def of(family: str) -> list[Scene]:
    return [scene for scene in SCENES if scene.family == family]


def test_every_scene_has_five_references_and_all_are_true():
    for scene in SCENES:
        captions = references(scene)
        assert len(captions) == 5
        for caption in captions:
            verdict = check_caption(caption, scene)
            assert verdict.true, (scene.id, caption, verdict.reason)
            assert verdict.reason == ""


def test_references_are_the_same_each_time_and_only_of_the_own_scene():
    assert [references(scene) for scene in SCENES[:30]] == [references(scene) for scene in SCENES[:30]]
    strange = sum(check_caption(references(one)[0], other).true for one in SCENES[:40] for other in SCENES[40:80])
    assert strange <= 0.05 * 40 * 40  # true by luck, as of two black circles in two scenes


def test_no_kind_of_sentence_is_true_of_a_scene_of_another_family():
    """The three families do not overlap, so a model cannot gather points by an answer to another question."""
    for scene in SCENES[:90]:
        captions = {f"a {c1} {s1} next to a {c2} {s2}" for c1, s1 in kinds(scene) for c2, s2 in kinds(scene)}
        captions |= {f"the larger {shape} is {color}" for color, shape in kinds(scene)}
        captions |= {f"the two {color} things are {way}" for color, _ in kinds(scene) for way in WAYS.values()}
        true = {caption for caption in captions if check_caption(caption, scene).true}
        start = {"near": "a ", "size": "the larger ", "bind": "the two "}[scene.family]
        assert len(true) == (2 if scene.family == "near" else 1)
        assert all(caption.startswith(start) for caption in true)


def kinds(scene: Scene) -> list[tuple[str, str]]:
    return [thing.kind for thing in scene.things]


@pytest.mark.parametrize(
    "caption",
    [
        "",
        "a red circle next to",
        "a red circle next to a blue square one above the other",
        "the red circle is larger than the blue square",
        "the red circle is larger than the red circle is larger than the blue one",
        "a crimson circle next to a blue hexagon",
        "the two red things are side by side one above the other",
        "a red circle near a blue square",
    ],
)
def test_what_is_outside_the_grammar_claims_nothing_and_is_false(caption):
    assert read_statement(caption) is None
    for scene in SCENES[:3]:
        verdict = check_caption(caption, scene)
        assert (verdict.true, verdict.reason) == (False, "not a sentence of the grammar")
        assert {"near": verdict.pair, "size": verdict.size, "bind": verdict.bind}[scene.family] is False
