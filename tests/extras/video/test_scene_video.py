"""Moving scenes: true captions, motions that depend on the order of frames, and features from the pixels."""

import pytest

from legenda.extras.video.data import FRAMES, MOTIONS, make_video_scene, video_references, video_scores

SCENES = [make_video_scene("train", index) for index in range(60)]


def test_motions_take_turns_and_things_stay_inside():
    assert [scene.motion for scene in SCENES[:6]] == list(MOTIONS)
    for scene in SCENES:
        assert len(scene.things) == FRAMES
        assert all(0 < edge < 1 for thing in scene.things for edge in thing.box)


@pytest.mark.parametrize("scene", SCENES[:12], ids=lambda scene: scene.motion)
def test_the_motion_is_what_the_frames_show(scene):
    first, last = scene.things[0], scene.things[-1]
    moved = {
        "left": last.x < first.x - 0.2,
        "right": last.x > first.x + 0.2,
        "up": last.y < first.y - 0.2,
        "down": last.y > first.y + 0.2,
        "grows": last.size > first.size + 0.09,
        "shrinks": last.size < first.size - 0.09,
    }
    assert [motion for motion, seen in moved.items() if seen] == [scene.motion]


def test_references_are_five_and_true_and_others_are_not():
    for scene in SCENES:
        captions = video_references(scene)
        assert len(set(captions)) == 5
        for caption in captions:
            assert video_scores({"x": caption}, {"x": scene}) == {"truth": 1.0, "thing": 1.0, "motion": 1.0}
    left = SCENES[0]
    kind = " ".join(left.things[0].kind)
    captions = {
        "a": f"a {kind} moves right",
        "b": "a purple house moves left",
        "c": "left",
        "d": f"a {kind} moves left",
    }
    scores = video_scores(captions, dict.fromkeys(captions, left))
    assert scores == {"truth": 0.25, "thing": 0.5, "motion": 0.5}
    assert video_scores({}, {}) == {"truth": None, "thing": None, "motion": None}
