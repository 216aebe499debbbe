"""Captions of images from Python: paths, PIL images, arrays, lists, several threads, and bad input."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

import legenda
from legenda.data.captions import ScenesData
from legenda.data.scenes import draw_scene, make_scenes
from legenda.decoding import GenerationOutput
from legenda.errors import ConfigError, DataError
from legenda.evaluation.runs import TorchCaptioner, to_arrays
from legenda.pipeline import Pipeline, extract_captions
from legenda.regions import Memory, Regions
from legenda.report.overlay import draw_caption_attention
from legenda.tasks.captioning import collapse_repeats
from legenda.text import Vocabulary


@pytest.fixture(scope="module")
def pipeline(make_run) -> Pipeline:
    return legenda.open(make_run("ngsan", ScenesData(train=40, validation=2)), device="cpu")


@pytest.fixture(scope="module")
def scenes() -> list[Image.Image]:
    return [draw_scene(scene) for scene in make_scenes("fresh", 5)]


def texts(captions):
    return [caption.text for caption in captions]


def test_a_caption_has_text_words_tokens_and_attention(pipeline, scenes):
    caption = pipeline.caption(scenes[0])
    regions = pipeline.extract(scenes[0])
    assert caption.text == " ".join(caption.words) == pipeline.model.caption(regions)[0]
    assert [pipeline.vocabulary.tokens[token] for token in caption.tokens] == list(caption.words)
    assert caption.log_prob < 0
    assert (
        caption.attention.shape
        == (len(caption.words), len(caption.boxes))
        == (len(caption.tokens), len(regions.features[0]))
    )
    np.testing.assert_allclose(caption.attention.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(caption.boxes, regions.boxes[0])


def test_a_word_with_a_space_inside_has_the_token_and_the_attention_of_its_own():
    vocabulary = Vocabulary(("<end>", "<unk>", "a", "3\u00a01/2", "inch", "\n", "screw"))
    tokens = torch.tensor([[[2, 3, 5, 4, 6, 0, 0]]])
    weights = torch.eye(7).reshape(1, 1, 7, 1, 7)
    output = GenerationOutput(tokens, torch.full(tokens.shape, -1.0), torch.tensor([[-6.0]]), weights)
    boxes = torch.tensor([0.1, 0.1, 0.6, 0.6]).repeat(1, 7, 1)
    (caption,) = extract_captions(to_arrays(output, Regions(torch.zeros(1, 7, 3), boxes)), vocabulary, 0)
    assert caption.words == ("a", "3\u00a01/2", " ", "inch", "screw")
    assert caption.tokens == (2, 3, 5, 4, 6)
    assert caption.attention.argmax(axis=1).tolist() == [0, 1, 2, 3, 4]
    assert caption.text == vocabulary.decode(tokens[0, 0].tolist())
    sheet = draw_caption_attention(Image.new("RGB", (90, 90)), [caption], title="one", side=90)
    assert sheet.width > 5 * 90
    assert collapse_repeats({"1": "2\u00a01/2 1/2 1/2 inch inch"}) == {"1": "2\u00a01/2 1/2 inch"}


def test_one_image_gives_one_caption_and_a_list_a_list(pipeline, scenes, tmp_path):
    scenes[0].save(tmp_path / "a.png")
    pixels = np.asarray(scenes[0])
    encoded = (tmp_path / "a.png").read_bytes()
    kinds = [tmp_path / "a.png", str(tmp_path / "a.png"), scenes[0], pixels, encoded, bytearray(encoded)]
    written = BytesIO()
    scenes[0].save(written, "PNG")  # stands at its end
    expected = pipeline.caption(scenes[0]).text
    with (tmp_path / "a.png").open("rb") as file:
        kinds += [file, BytesIO(encoded), written]
        assert [pipeline.caption(kind).text for kind in kinds] == [expected] * len(kinds)
        for several in (kinds, tuple(kinds), iter(kinds), map(str, [tmp_path / "a.png"])):
            assert set(texts(pipeline.caption(several, batch_size=3))) == {expected}
    assert texts(pipeline.caption((pixels,))) == texts(pipeline.caption(pixels[None])) == [expected]
    assert pipeline.caption([]) == pipeline.caption(iter(())) == []
    assert pipeline.extract(path for path in [tmp_path / "a.png"]).features.shape[0] == 1
    with pytest.raises(DataError):
        pipeline.extract([])


def test_captions_and_pipelines_print_as_one_line(pipeline, scenes):
    caption = pipeline.caption(scenes[0], max_length=4)
    assert caption.text in repr(caption)
    assert len(caption.words) == 4
    assert len(repr([caption])) < 100
    assert repr(pipeline) == "Pipeline(model='ngsan', extractor='scenes')"


def test_a_url_is_fetched_where_it_is_allowed(pipeline, scenes, tmp_path, serve_folder):
    scenes[0].save(tmp_path / "a.png")
    captions = pipeline.caption([f"{serve_folder(tmp_path)}/a.png", tmp_path / "a.png"], allow_urls=True)
    assert captions[0].text == captions[1].text


def test_several_threads_give_the_same_captions_as_one(pipeline, scenes):
    pipeline.model.train()
    pipeline = Pipeline(TorchCaptioner(pipeline.model), pipeline.extractor)  # sets evaluation mode once
    expected = [pipeline.caption(scene).text for scene in scenes]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda scene: pipeline.caption(scene).text, scenes * 2)) == expected * 2
    assert not pipeline.model.training


@pytest.mark.parametrize(
    ("images", "options", "error", "message"),
    [
        (3, {}, DataError, "image 0 is of type int"),
        ([b"no image"], {}, DataError, "image 0 is not an image"),
        ("absent.png", {}, DataError, r"absent\.png does not exist"),
        ([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4, 3))], {}, DataError, "image 1 is an array of float64"),
        (np.zeros((40, 40, 3), np.uint8), {}, DataError, "image 0: the image shows 0 things on a plain ground"),
        ("http://localhost/a.png", {}, ConfigError, "is a URL; give allow_urls=True"),
        ("a.png", {"num_beams": 4}, ConfigError, "did you mean beam_size"),
        ("a.png", {"max_new_tokens": 4}, ConfigError, "did you mean max_length"),
        ("a.png", {"num_captions": 4}, ConfigError, "num_captions must lie between 1 and beam_size=3, not 4"),
    ],
)
def test_bad_input_is_one_sentence(pipeline, images, options, error, message):
    with pytest.raises(error, match=message):
        pipeline.caption(images, **options)


def test_samples_of_an_image_do_not_depend_on_its_batch(pipeline, scenes, tmp_path):
    """So a job that is killed and resumed writes the same."""
    files = [f"{number}.png" for number in range(4)]
    for name, scene in zip(files, scenes, strict=False):
        scene.save(tmp_path / name)

    def draw(names, batch_size, seed=3):
        options = {"do_sample": True, "seed": seed, "temperature": 2.0}
        found = pipeline.caption_files(names, options, folder=tmp_path, batch_size=batch_size, num_captions=3)
        return [[caption.text for caption in image.captions] for image in found]

    together = draw(files, 4)
    assert together == draw(files, 1) == draw(files, 3)
    assert together[2:] == draw(files[2:], 2)
    assert together != draw(files, 4, seed=0)
    options = {"num_captions": 3, "do_sample": True, "seed": 3, "temperature": 2.0}
    for batch_size in (1, 3):
        found = pipeline.caption([tmp_path / name for name in files], batch_size=batch_size, **options)
        alone = [pipeline.caption(tmp_path / name, **options) for name in files]
        assert list(map(texts, found)) == list(map(texts, alone)) == together


def test_a_temperature_of_0_is_beam_search(pipeline, scenes):
    expected = pipeline.caption(scenes[0])
    assert texts(pipeline.caption([scenes[0]], temperature=0, do_sample=False)) == [expected.text]
    assert pipeline.caption(scenes[0], temperature=0.0).log_prob == expected.log_prob
    with pytest.raises(ConfigError, match=r"temperature.*do_sample"):
        pipeline.caption(scenes[0], temperature=0, do_sample=True)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_an_image_without_finite_scores_does_not_affect_its_batch(pipeline, scenes, tmp_path, batch_size):
    files = [f"{number}.png" for number in range(4)]
    for name, scene in zip(files, scenes, strict=False):
        scene.save(tmp_path / name)
    expected = list(pipeline.caption_files(files, folder=tmp_path))
    faulty = pipeline.extract(scenes[2]).features.sum()

    def overflow(_: object, inputs: tuple[Regions], memory: Memory) -> Memory:
        nan = torch.where(inputs[0].features.sum((1, 2)) == faulty, torch.nan, 0.0).view(-1, 1, 1)
        return replace(memory, states=memory.states + nan)

    hook = pipeline.model.encoder.register_forward_hook(overflow)
    found = list(pipeline.caption_files(files, folder=tmp_path, batch_size=batch_size, need_attention=True))
    hook.remove()
    assert [image.error is None for image in found] == [True, True, False, True]
    assert "2.png: the scores of image 0 of the batch are NaN or infinite" in found[2].error
    for number in (0, 1, 3):  # the last digits of a score depend on the size of the batch
        (caption,), (other,) = found[number].captions, expected[number].captions
        assert (caption.text, caption.score) == (other.text, pytest.approx(other.score, abs=1e-4))
    assert [image.pixels is None for image in found] == [False, False, True, False]
