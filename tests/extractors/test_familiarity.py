"""Warnings of images unlike those of the training, and of one caption for most images."""

import json

import pytest
from PIL import Image

from legenda.data.captions import ScenesData
from legenda.data.scenes import draw_scene, make_scene
from legenda.data.scenes.pixels import find_things
from legenda.evaluation.evaluate import describe_one_caption
from legenda.images.extractor import find_unfamiliar
from legenda.report.images import packaged_photographs


def test_no_scene_is_unfamiliar():
    scenes = [(str(number), find_things(draw_scene(make_scene("familiar", number)))[1]) for number in range(100)]
    assert find_unfamiliar("scenes", scenes) == []


def test_the_photographs_of_the_package_are_unfamiliar_to_models_of_scenes_alone():
    found = [(path.name, find_things(Image.open(path))[1]) for path in packaged_photographs()]
    assert find_unfamiliar("scenes", found) == [path.name for path in packaged_photographs()]
    assert find_unfamiliar("photo", found) == []


def test_a_model_of_scenes_warns_of_photographs_when_it_captions_and_evaluates(make_run, tmp_path, run_command, caplog):
    run = make_run("transformer", ScenesData(train=40, validation=2))
    images = " ".join(map(str, packaged_photographs()))
    assert run_command(f"caption {images} --model {run}")[0] == 0
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{packaged_photographs()[0]} and 3 more: a model of scenes knows only")
    run_command(f"extract {images} --extractor scenes --out {tmp_path / 'store.safetensors'}")
    said = [{"raw": "a photograph"}]
    entries = [{"filename": path.name, "split": "val", "sentences": said} for path in packaged_photographs()]
    (tmp_path / "data.json").write_text(json.dumps({"images": entries}))
    caplog.clear()
    code, _, error = run_command(
        f"evaluate {run} --annotations {tmp_path / 'data.json'} --features {tmp_path / 'store.safetensors'}"
    )
    assert code == 0, error
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["astronaut and 3 more"]
    caplog.clear()
    assert run_command(f"evaluate {run}")[0] == 0
    assert caplog.records == []


@pytest.mark.parametrize(("same", "count", "warns"), [(11, 20, True), (10, 20, False), (19, 19, False), (0, 0, False)])
def test_one_caption_for_more_than_half_of_20_images_is_named(same, count, warns):
    captions = {str(number): "a dog" if number < same else f"dog {number}" for number in range(count)}
    warning = describe_one_caption(captions)
    assert (warning is not None) == warns
    assert warning is None or warning.startswith(f"{same} of {count} images have the same caption, 'a dog'")
