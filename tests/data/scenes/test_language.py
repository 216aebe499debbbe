"""References are true of their scenes, and captions with one error are false for that error."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legenda.data.scenes import Scene, Thing, check_caption, make_scenes, references
from legenda.data.scenes.language import PairClaim, SizeClaim, read_claim
from legenda.data.scenes.world import COLORS, SHAPES, axis_of

SCENES = tuple(make_scenes("val", 600, seed=3))
WAYS = {"horizontal": "side by side", "vertical": "one above the other"}
OTHER_WAY = {"horizontal": WAYS["vertical"], "vertical": WAYS["horizontal"]}
WORDS = sorted({word for scene in SCENES[:60] for caption in references(scene) for word in caption.split()})


def of(family: str) -> list[Scene]:
    return [scene for scene in SCENES if scene.family == family]


def a(thing: Thing) -> str:
    return f"{'an' if thing.color == 'orange' else 'a'} {thing.color} {thing.shape}"


def rest(scene: Scene) -> list[Thing]:
    return [thing for thing in scene.things if thing not in (scene.first, scene.second)]


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


def test_references_of_the_size_and_bind_families_are_five_different_sentences():
    for scene in (*of("size"), *of("bind")):
        assert len(set(references(scene))) == 5


def test_in_a_near_scene_all_references_name_the_pair_and_some_say_how_it_stands():
    for scene in of("near"):
        verdicts = [check_caption(caption, scene) for caption in references(scene)]
        assert all(verdict.pair for verdict in verdicts)
        assert sorted(verdict.axis is None for verdict in verdicts) == [False, False, False, True, True]


def test_of_five_near_references_one_says_next_to_one_close_to_and_three_the_way_to_stand():
    for scene in of("near"):
        way = axis_of(scene.first, scene.second)
        assert way is not None
        forms = [re.sub(r"\ban? \w+ \w+\b", "THING", caption) for caption in references(scene)]
        three = [f"THING and THING {WAYS[way]}"] * 3
        assert sorted(forms) == sorted(["THING next to THING", "THING close to THING", *three])


def test_no_word_of_a_reference_says_the_other_way_to_stand():
    other_words = {"vertical": r"\bbeside\b|\bside\b", "horizontal": r"\babove\b|\bover\b|\bunder\b"}
    for scene in (*of("near"), *of("bind")):
        way = axis_of(scene.first, scene.second)
        assert way is not None
        assert not any(re.search(other_words[way], caption) for caption in references(scene))


def test_articles_fit_their_words():
    for scene in SCENES:
        for caption in references(scene):
            assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", caption)


def test_a_near_caption_is_wrong_in_exactly_the_point_that_was_changed():
    for scene in of("near"):
        one, two, third = scene.first, scene.second, rest(scene)[0]
        way = axis_of(one, two)
        assert way is not None
        wrong = check_caption(f"{a(one)} and {a(two)} {OTHER_WAY[way]}", scene)
        assert (wrong.true, wrong.reason) == (False, "they stand the other way")
        assert (wrong.pair, wrong.axis) == (True, False)
        other = check_caption(f"{a(one)} next to {a(third)}", scene)
        assert (other.true, other.reason) == (False, "the two are not next to each other")
        assert (other.pair, other.axis) == (False, None)
        twice = check_caption(f"{a(one)} next to {a(one)}", scene)
        assert (twice.true, twice.pair) == (False, False)
        assert "named twice" in twice.reason
        absent = next((c, s) for c in COLORS for s in SHAPES if (c, s) not in {t.kind for t in scene.things})
        article = "an" if absent[0] == "orange" else "a"
        missing = check_caption(f"{article} {absent[0]} {absent[1]} next to {a(two)}", scene)
        assert (missing.true, missing.reason) == (False, f"there is no {absent[0]} {absent[1]}")


def test_a_size_caption_is_false_when_the_sizes_are_swapped_or_the_thing_is_not_there():
    for scene in of("size"):
        large, small, shape = scene.first.color, scene.second.color, scene.first.shape
        swapped = [
            f"the {small} {shape} is larger than the {large} {shape}",
            f"the {small} {shape} is larger than the {large} one",
            f"the {large} {shape} is smaller than the {small} {shape}",
            f"the larger {shape} is {small}",
            f"the {small} {shape} is the larger one",
        ]
        for caption in swapped:
            verdict = check_caption(caption, scene)
            assert (verdict.true, verdict.size) == (False, False)
            assert verdict.reason == f"the {small} {shape} is the smaller one"
        stranger = next(color for color in COLORS if color not in (large, small))
        verdict = check_caption(f"the {stranger} {shape} is larger than the {small} one", scene)
        assert verdict.reason == f"there is no {stranger} {shape}"
        assert not check_caption(f"the {large} {shape} is larger than the {large} one", scene).true
        single = rest(scene)[0]
        verdict = check_caption(f"the larger {single.shape} is {single.color}", scene)
        assert verdict.reason == f"there are not two {single.shape} shapes to compare"


def test_a_bind_caption_is_false_of_the_other_way_another_color_and_other_shapes():
    for scene in of("bind"):
        one, two, third = scene.first, scene.second, rest(scene)[0]
        way = axis_of(one, two)
        assert way is not None
        for caption in (
            f"the two {one.color} things are {OTHER_WAY[way]}",
            f"both {one.color} things stand {OTHER_WAY[way]}",
            f"the {one.color} {two.shape} and the {one.color} {one.shape} are {OTHER_WAY[way]}",
        ):
            verdict = check_caption(caption, scene)
            assert (verdict.true, verdict.bind, verdict.reason) == (False, False, "they stand the other way")
        verdict = check_caption(f"the two {third.color} things are {WAYS[way]}", scene)
        assert verdict.reason == f"there are not two {third.color} things"
        verdict = check_caption(f"the {one.color} {one.shape} and the {one.color} {third.shape} are {WAYS[way]}", scene)
        assert verdict.reason == f"the two {one.color} things have other shapes"
        assert not check_caption(
            f"the {one.color} {one.shape} and the {one.color} {one.shape} are {WAYS[way]}", scene
        ).true


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
        ".",
        "a red circle",
        "a red circle next to",
        "a red circle next to a blue square next to a red circle",
        "a red circle next to a blue square one above the other",
        "a red circle and a blue square",
        "the red circle is larger than the blue square",
        "the red circle is larger than the red circle is larger than the blue one",
        "the red circle and the blue square are side by side",
        "a crimson circle next to a blue hexagon",
        "the two red things are side by side one above the other",
        "a red circle, a blue square",
        "a red circle near a blue square",
    ],
)
def test_what_is_outside_the_grammar_claims_nothing_and_is_false(caption):
    assert read_claim(caption) is None
    for scene in SCENES[:3]:
        verdict = check_caption(caption, scene)
        assert (verdict.true, verdict.reason) == (False, "not a sentence of the grammar")
        assert {"near": verdict.pair, "size": verdict.size, "bind": verdict.bind}[scene.family] is False


def test_capitals_spaces_and_a_full_stop_do_not_matter():
    claim = PairClaim(("red", "circle"), ("orange", "star"), None)
    assert read_claim("a red circle next to an orange star") == claim
    assert read_claim("a red circle close to an orange star") == claim
    assert read_claim("  A red circle  next to an Orange star. ") == claim
    assert read_claim("the blue ring is smaller than the red one") == SizeClaim("ring", "red", "blue")


salad = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(caption=salad | st.text(max_size=40), number=st.integers(0, len(SCENES) - 1))
def test_any_text_can_be_checked(caption, number):
    verdict = check_caption(caption, SCENES[number])
    assert verdict.true == (verdict.reason == "")
    if read_claim(caption) is None:
        assert not verdict.true
