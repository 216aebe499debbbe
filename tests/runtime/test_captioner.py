"""Exported captioners equal PyTorch, through pipelines and the command line too."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import legenda
from legenda.data.scenes import draw_scene, make_scenes
from legenda.errors import ConfigError, DataError
from legenda.evaluation.evaluate import caption_settings, generate
from legenda.evaluation.runs import TorchCaptioner, load_captioner_run
from legenda.export import export_captioner
from legenda.pipeline import Pipeline
from legenda.runtime.captioner import OnnxCaptioner
from legenda.runtime.settings import override
from legenda.text import Vocabulary

MODELS = ("transformer", "ngsan", "ort", "aoanet", "xlan", "xtransformer", "updown", "mdsan", "meshed")
SIZES = {"dim": 16, "num_heads": 2, "num_layers": 2, "decoder_layers": 2, "ff_dim": 24, "mid_dim": 4, "additive_dim": 8}
WORDS = ["a", "the", "of", "dog", "cat", "bird", "red", "blue", "green", "on", "in", "near", "runs", "sits", "two"]
SEARCHES = [
    {"beam_size": 1},
    {"beam_size": 4},
    {"beam_size": 4, "num_beam_groups": 2, "length_penalty": 1.0, "temperature": 0.8},
    {"beam_size": 2, "must": ("dog", "red|blue")},
    {"do_sample": True, "top_p": 0.9, "trigram_penalty": 1.0},
    {"beam_size": 3, "length_penalty": 0.0, "no_repeat_ngram_size": 2, "forbidden_last_words": ("a", "the", "of")},
]


def draw_regions(counts, width, seed=0):
    """Return random regions of images with so many each."""
    random = np.random.default_rng(seed)
    images = []
    for count in counts:
        corners = np.sort(random.random((count, 2, 2)) * 0.9, axis=1)
        corners[:, 1] += 0.05
        boxes = np.concatenate([corners[:, 0], corners[:, 1]], axis=1).astype(np.float32)
        images.append((random.standard_normal((count, width)).astype(np.float32), boxes))
    return images


def create(name: str, feature_dim: int = 6, **options) -> legenda.models.Captioner:
    torch.manual_seed(3)
    vocabulary = Vocabulary.build([WORDS], min_count=1)
    fields = legenda.models.describe_model(name).config.model_fields
    sizes = {option: size for option, size in (SIZES | options).items() if option in fields}
    model = legenda.create_model(name, vocab_size=len(vocabulary), feature_dim=feature_dim, **sizes).eval()
    model.vocabulary = vocabulary
    model.generation_config = model.generation_config.replace(
        bos_token_id=0, eos_token_id=0, pad_token_id=None, suppress_tokens=(1,), beam_suppress_tokens=(), max_length=9
    )
    return model


def train(model: legenda.models.Captioner) -> None:
    """Learn a caption for each of six images, so that its distributions are those of a trained model."""
    random = torch.Generator().manual_seed(0)
    images = draw_regions([5] * 6, model.config.feature_dim, seed=9)
    regions = legenda.Regions.from_numpy(*map(np.stack, zip(*images, strict=True)))
    words = torch.randint(2, len(model.vocabulary), (6, 1, 8), generator=random)
    words[..., 5:] = 0
    inputs = F.pad(words, (1, 0))[..., :-1]
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.train()
    for _ in range(60):
        loss = F.cross_entropy(model(regions, inputs)[..., :6, :].flatten(0, 2), words[..., :6].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()


def check_equal(model: legenda.models.Captioner, exported: OnnxCaptioner, images, searches=SEARCHES) -> None:
    for options in searches:
        config = override(model.generation_config, options, model.vocabulary)
        count = 2 if config.beam_size > 1 or config.do_sample else 1
        expected = TorchCaptioner(model).search(images, config, num_captions=count, need_attention=True)
        actual = exported.search(images, config, num_captions=count, need_attention=True)
        np.testing.assert_array_equal(actual.output.tokens, expected.output.tokens)
        np.testing.assert_allclose(actual.output.scores, expected.output.scores, atol=1e-4)
        np.testing.assert_allclose(actual.output.log_probs, expected.output.log_probs, atol=1e-4)
        np.testing.assert_allclose(actual.output.attention, expected.output.attention, atol=1e-5)
        np.testing.assert_array_equal(actual.mask, expected.mask)
        if expected.boxes is not None:
            np.testing.assert_array_equal(actual.boxes, expected.boxes)


@pytest.mark.slow
@pytest.mark.parametrize("trained", [False, True], ids=["random", "trained"])
@pytest.mark.parametrize("name", MODELS)
def test_searches_equal_those_of_pytorch(tmp_path, name, trained):
    """Images of different numbers of regions, in one batch and alone, by every kind of search."""
    model = create(name)
    if trained:
        train(model)
    export_captioner(model, tmp_path)
    exported = OnnxCaptioner.load(tmp_path)
    check_equal(model, exported, draw_regions((5, 2, 7, 1), 6))
    check_equal(model, exported, draw_regions((3,), 6, seed=1))
    check_equal(model, exported, draw_regions([5] * 6, 6, seed=9), SEARCHES[:2])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ngsan", "aoanet", "xlan", "mdsan"])
def test_wide_models_equal_pytorch(tmp_path, name):
    model = create(name, feature_dim=512, dim=512, num_heads=8, ff_dim=1024, mid_dim=64, additive_dim=128)
    export_captioner(model, tmp_path)
    check_equal(model, OnnxCaptioner.load(tmp_path), draw_regions((36, 12), 512), SEARCHES[1:3])


@pytest.mark.slow
def test_eight_bits_make_a_fourth_of_the_size(tmp_path):
    model = create("transformer", feature_dim=256, dim=256, num_heads=4, ff_dim=512)
    train(model)
    plain = export_captioner(model, tmp_path / "plain")
    small = export_captioner(model, tmp_path / "small", int8=True)
    sizes = [sum(file.stat().st_size for file in report.files) for report in (plain, small)]
    assert sizes[1] < 0.45 * sizes[0]
    assert plain.int8_difference is None
    assert 0 < small.int8_difference < 0.5
    images = draw_regions([5] * 6, 256, seed=9)
    config = model.generation_config
    first, second = (OnnxCaptioner.load(tmp_path / name).search(images, config) for name in ("plain", "small"))
    np.testing.assert_array_equal(first.output.tokens, second.output.tokens)


@pytest.mark.slow
def test_the_packaged_model_equals_its_export(tmp_path):
    """Photographs through both pipelines: captions, scores, attention, things, and the choice among beams."""
    from legenda.hub import find_model
    from legenda.models.checkpoint import load_with_config
    from legenda.run_folder import ASSETS

    model, config = load_with_config(find_model("photo"))
    export_captioner(model, tmp_path, config=config)
    photographs = sorted((ASSETS / "photographs").glob("*.jpg"))
    for options in ({}, {"beam_size": 5, "num_captions": 3}, {"do_sample": True, "top_k": 20}):
        pairs = zip(*(legenda.open(name).caption(photographs, **options) for name in ("photo", tmp_path)), strict=True)
        for expected, actual in pairs:
            several = zip(expected, actual, strict=True) if isinstance(expected, list) else [(expected, actual)]
            for one, other in several:
                assert (one.text, one.tokens, one.things) == (other.text, other.tokens, other.things)
                assert other.score == pytest.approx(one.score, abs=1e-4)
                np.testing.assert_allclose(other.attention, one.attention, atol=1e-4)


@pytest.fixture(scope="module")
def pipelines(run_and_export) -> tuple[Pipeline, Pipeline]:
    return tuple(map(legenda.open, run_and_export))


@pytest.fixture(scope="module")
def scenes():
    return [draw_scene(scene) for scene in make_scenes("fresh", 5)]


def test_an_exported_folder_opens_as_a_run_does(pipelines, scenes):
    trained, exported = pipelines
    for options in ({}, {"num_captions": 2}, {"do_sample": True, "seed": 3}, {"num_beam_groups": 3}):
        for one, other in zip(trained.caption(scenes, **options), exported.caption(scenes, **options), strict=True):
            pairs = zip(one, other, strict=True) if isinstance(one, list) else [(one, other)]
            for expected, actual in pairs:
                assert (actual.words, actual.tokens) == (expected.words, expected.tokens)
                assert actual.score == pytest.approx(expected.score, abs=1e-4)
                assert actual.log_prob == pytest.approx(expected.log_prob, abs=1e-4)
                np.testing.assert_allclose(actual.heads, expected.heads, atol=1e-5)
                np.testing.assert_array_equal(actual.boxes, expected.boxes)
    assert (exported.summary, exported.extractor.name) == ("of scenes", "scenes")
    assert exported.captioner.parameter_count == trained.model.parameter_count
    assert repr(exported) == repr(trained)
    for use in (lambda: exported.model, lambda: exported.extract(scenes[0])):
        with pytest.raises(ConfigError, match="ngsan"):
            use()


def test_the_command_captions_with_an_exported_folder(run_and_export, scenes, tmp_path, run_command):
    scenes[0].save(tmp_path / "a.png")
    outputs = [run_command(f"caption {tmp_path / 'a.png'} --model {folder} --device cpu") for folder in run_and_export]
    assert outputs[0][0] == 0
    assert outputs[0] == outputs[1]


def test_an_exported_folder_is_evaluated_as_a_run_is(run_and_export, run_command, tmp_path):
    trained, exported = map(load_captioner_run, run_and_export)
    split = trained.data().split("val")
    expected = generate(trained, split, {"beam_size": 2})
    assert generate(exported, split, {"beam_size": 2}) == expected
    samples = {"do_sample": True, "seed": 4}
    assert generate(exported, split, samples) == generate(trained, split, samples)
    code, _, err = run_command(f"evaluate {run_and_export[1]} --out {tmp_path}")
    assert code == 2
    assert "--annotations" in err


def test_an_evaluation_names_the_beams_of_the_exported_model(run_and_export, tmp_path):
    shutil.copytree(run_and_export[1], tmp_path / "five")
    settings = json.loads((tmp_path / "five" / "export.json").read_text())
    settings["generation_config"]["beam_size"] = 5
    (tmp_path / "five" / "export.json").write_text(json.dumps(settings))
    run = load_captioner_run(tmp_path / "five")
    assert caption_settings(run.config, "val", {}, "fast")["beam_size"] == run.model.generation_config.beam_size == 5


@pytest.mark.parametrize("option", ["--precision bf16", "--compile", "--max-length 90"])
def test_options_that_an_export_lacks_are_refused(exported, scenes, tmp_path, run_command, option):
    scenes[0].save(tmp_path / "a.png")
    code, _, err = run_command(f"caption {tmp_path / 'a.png'} --model {exported} {option}")
    assert code == 2
    assert err.count("\n") == 1
    assert str(exported) in err


def test_regions_that_do_not_fit_are_refused(exported):
    captioner = OnnxCaptioner.load(exported)
    width = captioner.settings.feature_dim
    boxes = np.array([[0, 0, 1, 1]], np.float32)
    for images in ([(np.zeros((1, width + 1), np.float32), boxes)], [(np.zeros((1, width), np.float32), None)]):
        with pytest.raises(DataError):
            captioner.search(images, captioner.generation_config)


def test_nothing_imports_pytorch(exported):
    """A process in which PyTorch cannot be imported opens, encodes and searches."""
    code = f"""
import sys
sys.modules.update(torch=None, jaxtyping=None)
import numpy as np
from legenda.runtime.captioner import OnnxCaptioner
captioner = OnnxCaptioner.load({str(exported)!r})
images = [(np.ones((2, captioner.settings.feature_dim), np.float32), np.array([[0, 0, 1, 1]] * 2, np.float32))]
found = captioner.search(images, captioner.generation_config, need_attention=True)
print(captioner.vocabulary.decode(found.output.tokens[0, 0]))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    captioner = OnnxCaptioner.load(exported)
    width = captioner.settings.feature_dim
    images = [(np.ones((2, width), np.float32), np.array([[0, 0, 1, 1]] * 2, np.float32))]
    tokens = captioner.search(images, captioner.generation_config).output.tokens[0, 0]
    assert printed.stdout.strip() == captioner.vocabulary.decode(tokens)
    assert Path(exported).name == "ngsan"


@pytest.mark.slow
def test_a_model_that_reads_pixels_equals_pytorch(tmp_path):
    """Its attention is over the cells of the grid that the backbone makes, whose boxes the encoder gives."""
    pytest.importorskip("torchvision", reason="needs the extra vision")
    backbone = {"name": "torchvision:mobilenet_v3_small", "image_size": 64}
    model = create("transformer", feature_dim=576, backbone=backbone)
    export_captioner(model, tmp_path)
    pixels = np.random.default_rng(0).random((3, 1, 3 * 64 * 64)).astype(np.float32)
    images = [(image, np.array([[0, 0, 1, 1]], np.float32)) for image in pixels]
    check_equal(model, OnnxCaptioner.load(tmp_path), images, SEARCHES[1:2])
