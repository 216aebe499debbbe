"""`legenda caption --save-attention`: attention sheets for every kind of model."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import legenda
from command_results import error_of
from legenda.data.captions import ScenesData
from legenda.data.scenes import draw_scene, make_scene
from legenda.decoding import beam_search
from legenda.evaluation.runs import load_captioner_run
from legenda.report.overlay import draw_words

pytestmark = pytest.mark.usefixtures("one_thread")

SCENES = ScenesData(train=40, validation=2)
RED = (224, 0, 43)


@pytest.fixture(scope="module")
def run(make_run) -> Path:
    return make_run("ngsan", SCENES)


@pytest.fixture
def picture(tmp_path) -> Path:
    path = tmp_path / "a.png"
    draw_scene(make_scene("request", 2)).save(path)
    return path


def _searched(run: Path, picture: Path, **options) -> tuple[list[list[str]], np.ndarray, np.ndarray]:
    """Words, attention (captions, words, heads, regions) and boxes, straight from the search."""
    opened = load_captioner_run(run)
    ((features, boxes),) = opened.resolve_extractor(None).extract([Image.open(picture)])
    regions = legenda.Regions(torch.from_numpy(features)[None], torch.from_numpy(boxes)[None])
    found = beam_search(opened.model.eval(), regions, need_attention=True, **options)
    assert found.attention is not None
    assert opened.model.vocabulary is not None
    words = [opened.model.vocabulary.decode(row).split() for row in found.tokens[0].tolist()]
    return words, found.attention[0].detach().numpy(), boxes


@pytest.mark.parametrize("name", ["transformer", "ngsan", "aoanet", "updown", "xlan", "xtransformer", "mdsan"])
def test_sheets_show_the_attention_of_the_search(make_run, run_command, picture, tmp_path, name):
    run = make_run(name, SCENES)
    code, out, _ = run_command(f"caption {picture} --model {run} --save-attention {tmp_path / 'sheets'}")
    assert code == 0
    words, attention, boxes = _searched(run, picture, beam_size=3)
    assert out == f"{picture}: {' '.join(words[0])}\n"
    weights = attention[0, : len(words[0])].mean(axis=1)
    title = f"{picture}: {' '.join(words[0])}"
    expected = draw_words(Image.open(picture), boxes, words[0], weights, title=title)
    drawn = Image.open(tmp_path / "sheets" / "a.png.png")
    np.testing.assert_array_equal(np.asarray(drawn), np.asarray(expected))
    assert (np.asarray(drawn) == RED).all(axis=-1).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--head 0", "--head chooses what --save-attention FOLDER draws"),
        ("--save-attention {folder} --head 2", "there is no head 2; choose from 0 to 1"),
        ("--save-attention {picture}/sheets", "could not be written"),
    ],
)
def test_invalid_options_raise_one_sentence(run, run_command, picture, tmp_path, options, message):
    folder = tmp_path / "sheets"
    assert message in error_of(
        run_command(f"caption {picture} --model {run} {options.format(folder=folder, picture=picture)}")
    )
    assert not folder.exists()


BOXLESS = """import numpy as np


def extract(pictures):
    return [(np.ones((5, 3), np.float32), None) for _ in pictures]
"""


def test_regions_without_boxes_raise(noisy_photographs, make_run, run_command, tmp_path):
    extractor = tmp_path / "boxless.py"
    extractor.write_text(BOXLESS)
    run = make_run("aoanet", noisy_photographs.data, imported={"kind": "aoanet"})
    picture = noisy_photographs.folder / "p0.jpg"
    command = f"caption {picture} --model {run} --extractor {extractor}"
    assert run_command(command)[0] == 0
    assert f"the regions of {picture} have no boxes" in error_of(
        run_command(f"{command} --save-attention {tmp_path / 'sheets'}")
    )
