"""The extractor of the packaged model of photographs, and that model."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

import legenda
from legenda.data.features.predicted_words import NUM_PHRASES, NUM_WORDS, WIDTH
from legenda.extractors import load_extractor
from legenda.extractors.base import draw_test_image
from legenda.extractors.photo.nanodet import _suppress
from legenda.extractors.photo.regions import PARTS
from legenda.models.location import ASSETS, PACKAGED
from legenda.models.weights import dequantize, quantize

_FOLDER = ASSETS / PACKAGED


@pytest.fixture(scope="module")
def extractor():
    return load_extractor("photo")


def _beach() -> Image.Image:
    image = Image.new("RGB", (400, 300), (110, 170, 230))
    draw = ImageDraw.Draw(image)
    draw.rectangle([0, 180, 400, 300], fill=(225, 205, 150))
    draw.ellipse([150, 140, 260, 200], fill=(90, 55, 30))
    return image


def test_regions_have_the_documented_shapes_and_do_not_depend_on_the_batch(extractor):
    images = [draw_test_image(), _beach()]
    (first, boxes), (second, _) = extractor.extract(images)
    assert first.shape == (1 + PARTS + NUM_WORDS + NUM_PHRASES, WIDTH)
    assert boxes.shape == (len(first), 4)
    assert boxes[0].tolist() == boxes[-1].tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(boxes[1], [0, 0, 3 / 7, 3 / 7], atol=1e-6)
    np.testing.assert_allclose(boxes[PARTS], [4 / 7, 4 / 7, 1, 1], atol=1e-6)
    (swapped, _), (alone, _) = extractor.extract(images[::-1])
    np.testing.assert_allclose(swapped, second, atol=1e-3)
    np.testing.assert_allclose(alone, first, atol=1e-3)


def test_a_mirrored_image_has_the_mirrored_parts(extractor):
    image = draw_test_image()
    (plain, _), (mirrored, _) = extractor.extract([image, image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)])
    order = [0, *(1 + 3 * row + column for row in range(3) for column in (2, 1, 0))]
    near = np.abs(mirrored[1 : 1 + PARTS, :160] - plain[order[1:], :160]).mean()
    far = np.abs(mirrored[1 : 1 + PARTS, :160] - plain[1 : 1 + PARTS, :160]).mean()
    assert near < far


def test_boxes_that_overlap_a_better_one_of_their_class_are_removed():
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 0.9], [0, 0, 1, 0.9], [0, 0, 0.5, 0.5]], np.float32)
    assert _suppress(boxes, np.array([1, 1, 2, 1])) == [0, 2, 3]


def test_the_packaged_model_captions_with_its_vocabulary_and_repeats_itself():
    pipeline = legenda.open("photo", device="cpu")
    captions = [pipeline.caption([_beach()])[0] for _ in range(2)]
    assert captions[0].tokens == captions[1].tokens
    assert len(captions[0].text.split()) >= 4
    assert 3e6 < pipeline.model.parameter_count < 5e6


def test_the_packaged_files_fit_into_their_budget():
    sizes = {path.name: path.stat().st_size for path in _FOLDER.iterdir()}
    assert sum(sizes.values()) <= 12_000_000
    assert sizes["model.safetensors"] <= 5_500_000
    assert {path.suffix for path in map(Path, sizes)} == {".json", ".safetensors", ".txt"}


def test_quantized_matrices_are_restored_to_half_a_step():
    weights = {"matrix": torch.randn(6, 9), "kernel": torch.randn(4, 2, 3, 3), "bias": torch.randn(6)}
    stored = quantize(weights)
    assert stored["matrix"].dtype == torch.int8
    restored = dequantize(stored)
    assert restored.keys() == weights.keys()
    torch.testing.assert_close(restored["bias"], weights["bias"])
    step = weights["matrix"].abs().amax(1, keepdim=True) / 127
    assert ((restored["matrix"] - weights["matrix"]).abs() <= step / 2 + 1e-6).all()
