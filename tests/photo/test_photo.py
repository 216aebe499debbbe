"""The extractor of the packaged model of photographs, and that model."""

import json
import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from safetensors.torch import save_file

import legenda
from legenda.cli.main import main
from legenda.errors import CheckpointError, ConfigError
from legenda.extractors import load_extractor
from legenda.metrics import evaluate
from legenda.metrics.cider import coco_frequencies
from legenda.models.weights import dequantize, quantize
from legenda.photo import regions as layout
from legenda.photo.consensus import INPUTS, Consensus, normalized
from legenda.photo.regions import NUM_PHRASES, NUM_WORDS, Thing, describe_things, labels, name_kind, read_things
from legenda.photo.vision import BINS, PARTS, box_weights, colors, detect
from legenda.pipeline import json_entry
from legenda.run_folder import ASSETS, PACKAGED
from legenda.runtime.search import SearchOutput
from legenda.text.ngrams import NgramCounts, ngrams

_FOLDER = ASSETS / PACKAGED
_CAT = ASSETS / "photographs" / "cat.jpg"


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
    images = [Image.open(_CAT).convert("RGB"), _beach()]
    (first, boxes), (second, _) = extractor.extract(images)
    things = int(first[:, layout.IS_THING].sum())
    assert things >= 1
    assert first.shape == (1 + things + PARTS + NUM_WORDS + NUM_PHRASES, layout.WIDTH)
    assert boxes.shape == (len(first), 4)
    assert boxes[0].tolist() == boxes[-1].tolist() == [0, 0, 1, 1]
    assert boxes[1 + things].tolist() == [0, 0, 0.5, 0.5]
    assert boxes[things + PARTS].tolist() == [0.5, 0.5, 1, 1]
    (swapped, _), (alone, _) = extractor.extract(images[::-1])
    np.testing.assert_allclose(swapped, second, atol=1e-3)
    np.testing.assert_allclose(alone, first, atol=1e-3)


def test_a_mirrored_image_has_the_mirrored_parts_and_things(extractor):
    image = Image.open(_CAT).convert("RGB")
    (plain, boxes), (mirrored, others) = extractor.extract([image, image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)])
    parts, again = (x[x[:, layout.IS_PART] == 1, layout.START_VISUAL : layout.START_GLOBAL] for x in (plain, mirrored))
    order = [3 * row + column for row in range(3) for column in (2, 1, 0)]
    assert np.abs(again - parts[order]).mean() < np.abs(again - parts).mean()
    left, _, right, _ = boxes[1]
    np.testing.assert_allclose(others[1][[0, 2]], [1 - right, 1 - left], atol=0.1)


def test_a_box_is_pooled_over_its_share_of_each_cell():
    weights = box_weights(np.array([[0.0, 0.0, 1.0, 1.0], [0.25, 0.0, 1.0, 0.5], [0.4, 0.6, 0.41, 0.61]]), 2, 2)
    np.testing.assert_allclose(weights[0], np.full(4, 0.25), atol=1e-6)
    np.testing.assert_allclose(weights[1], [1 / 3, 2 / 3, 0, 0], atol=1e-6)
    np.testing.assert_allclose(weights.sum(1), np.ones(3), atol=1e-6)
    assert box_weights(np.zeros((0, 4), np.float32), 2, 3).shape == (0, 6)


def test_the_detector_finds_the_cat_where_it_is(extractor):
    ((features, boxes),) = extractor.extract([Image.open(_CAT).convert("RGB")])
    best = read_things(features, boxes)[0]
    assert best.label == "cat"
    assert best.score > 0.6
    left, top, right, bottom = best.box
    assert left < 0.5 < right
    assert top < 0.5 < bottom


def test_things_are_described_by_number_those_that_cover_most_first():
    def thing(label: str, score: float, side: float) -> Thing:
        return Thing(label, score, (0.0, 0.0, side, side))

    cups = [thing("cup", 0.9, 0.2), thing("cup", 0.8, 0.2), thing("dining table", 0.7, 0.9), thing("apple", 0.1, 0.9)]
    blank = Image.new("RGB", (320, 240))
    assert describe_things(cups, blank) == "a photograph of a dining table and two cups"
    assert describe_things([thing("orange", 0.9, 0.2)], blank) == "a photograph of an orange"
    assert describe_things([], blank) == "a photograph of something unknown"
    assert len(labels()) == layout.CLASSES


def test_without_things_the_kind_of_the_whole_image_is_named():
    cat = Image.open(_CAT).convert("RGB")
    assert name_kind(cat) == "cat"
    assert name_kind(Image.new("RGB", (320, 240))) is None
    assert describe_things([], cat) == "a photograph of a cat"
    assert len((_FOLDER / "kinds.txt").read_text().splitlines()) == 1000


def test_expected_cider_is_that_of_the_references_and_orders_the_beams():
    """One reference of four words, expected whatever the image, scores 10 for itself and 0 for other captions."""
    reference = (2, 3, 4, 5)
    slots = {gram: slot for slot, gram in enumerate(ngrams(reference))}
    idf = dict.fromkeys(slots, 2.0)
    values = normalized(reference, idf, 1.0)
    tensors = {
        "mean": np.zeros(INPUTS),
        "scale": np.ones(INPUTS),
        "weight": np.zeros((len(slots), INPUTS)),
        "bias": np.array([values[gram] for gram in slots]),
    }
    consensus = Consensus(slots, idf, 1.0, tensors, weight=2.0)
    tensors |= {"names": np.full(10, -1), "penalty": np.ones(1), "confidence": np.zeros(4)}
    tensors |= {"shown.weight": np.zeros((layout.CLASSES, INPUTS)), "shown.bias": np.zeros(layout.CLASSES)}
    captions = [[6, 7, 8, 9], [2, 3, 4, 9], list(reference)]
    (expected,) = consensus(np.zeros((1, layout.WIDTH)), [captions])
    assert expected[2] == pytest.approx(10, abs=1e-5)
    assert 10 > expected[1] > expected[0] == 0
    tokens = np.array([[[*caption, 0] for caption in captions]])
    output = SearchOutput(tokens, np.zeros((1, 3, 5)), np.array([[0.0, -1.0, -2.0]]))
    chosen = consensus.choose(output, np.zeros((1, layout.WIDTH)), 0, 2)
    assert chosen.tokens[0, :, :4].tolist() == [captions[2], captions[1]]
    assert chosen.scores.tolist() == [[-2, -1]]
    tensors["names"][[3, 5, 6, 7]] = 1, 2, 3, 1
    tensors["shown.bias"][1] = np.log(0.2 / 0.8)  # 2 and 3 have a probability of 1 / 2
    np.testing.assert_allclose(expected - consensus(np.zeros((1, layout.WIDTH)), [captions])[0], np.log(0.5 / 0.2))
    tensors["confidence"][:] = 1, 2, 3, -1
    (sure,) = consensus.confidence(np.zeros((1, layout.WIDTH)), [captions], np.array([[-0.5, -0.5, -1.0]]))
    costs = np.array([np.log(5) + np.log(2), np.log(5), np.log(5) + np.log(2)])
    np.testing.assert_allclose(sure, 1 / (1 + np.exp(-(1 + np.array([-1, -1, -2]) + 3 * expected - costs))), rtol=1e-5)


def test_a_consensus_that_is_missing_or_damaged_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=re.escape(str(tmp_path))):
        Consensus.load(tmp_path, 1.0)
    save_file({"ngrams": torch.zeros(3, 4, dtype=torch.int16)}, tmp_path / "consensus.safetensors")
    for weight in (1.0, "much", float("nan")):
        with pytest.raises(CheckpointError, match="consensus"):
            Consensus.load(tmp_path, weight)


def test_a_copy_of_the_packaged_model_has_its_consensus_where_its_words_are_the_same(tmp_path):
    model, config = legenda.load("photo"), json.loads((_FOLDER / "config.json").read_text())
    sections = {name: part for name, part in config.items() if name != "model"}
    copy = legenda.open(model.save(tmp_path / "copy", **sections), device="cpu")
    assert copy.consensus is not None
    assert copy.summary == config["summary"]
    assert copy.caption(_CAT).text == legenda.open("photo", device="cpu").caption(_CAT).text
    words = (tmp_path / "copy" / "vocabulary.txt").read_text().splitlines()
    (tmp_path / "copy" / "vocabulary.txt").write_text("\n".join([*words[:-2], *words[:-3:-1]]) + "\n")
    with pytest.raises(CheckpointError, match="consensus"):
        legenda.open(tmp_path / "copy", device="cpu")


def test_the_packaged_model_chooses_among_its_beams_by_consensus():
    pipeline = legenda.open("photo", device="cpu")
    assert pipeline.consensus is not None
    several = pipeline.caption(_CAT, num_captions=5)
    alone = legenda.open("photo", device="cpu", consensus=False).caption(_CAT, num_captions=5)
    assert {caption.text for caption in several} == {caption.text for caption in alone}
    assert pipeline.caption(_CAT).text == several[0].text
    blank = pipeline.caption(Image.new("RGB", (320, 240)))
    assert blank.text == "a photograph of something unknown"
    assert len(blank.attention) == len(blank.words)


def test_the_command_leaves_the_beams_in_the_order_of_their_scores_without_consensus(capsys):
    def scores(*options: str) -> list[float]:
        main(["caption", str(_CAT.with_name("coffee.jpg")), "--format", "json", "--num-captions", "5", *options])
        (entry,) = json.loads(capsys.readouterr().out)
        return [caption["score"] for caption in entry["captions"]]

    chosen, beams = scores(), scores("--no-consensus")
    assert sorted(chosen, reverse=True) == beams != chosen


def test_captions_of_files_come_with_things_and_fall_back_to_them(tmp_path):
    Image.new("RGB", (60, 40), (128, 128, 128)).save(tmp_path / "blank.png")
    pipeline = legenda.open("photo", device="cpu")
    assert pipeline.least_log_prob is not None
    files = [str(_CAT), str(tmp_path / "blank.png")]
    cat, blank = pipeline.caption_files(files)
    assert "cat" in cat.captions[0].words
    entry = json_entry(cat)["things"][0]
    assert entry["label"] == "cat"
    assert 0.6 < entry["score"] <= 1
    assert blank.captions[0].text == "a photograph of something unknown"
    unsure = replace(pipeline, least_log_prob=0.0)
    assert [result.captions[0].text for result in unsure.caption_files(files[:1])] == ["a photograph of a cat"]
    samples = unsure.caption(files[0], num_captions=4, do_sample=True, seed=0)
    assert len(samples) == 4
    assert "a photograph of a cat" not in [sample.text for sample in samples]


def test_the_packaged_files_fit_into_their_budget():
    sizes = {path.name: path.stat().st_size for path in _FOLDER.iterdir()}
    assert sum(sizes.values()) <= 26_000_000  # which the wheel compresses to less than 24 MB
    assert sizes["model.safetensors"] <= 6_000_000
    assert {path.suffix for path in map(Path, sizes)} == {".json", ".onnx", ".safetensors", ".txt"}


def test_quantized_matrices_are_restored_to_half_a_step():
    weights = {"matrix": torch.randn(6, 9), "kernel": torch.randn(4, 2, 3, 3), "bias": torch.randn(6)}
    stored = quantize(weights)
    assert stored["matrix"].dtype == torch.int8
    restored = dequantize(stored)
    assert restored.keys() == weights.keys()
    torch.testing.assert_close(restored["bias"], weights["bias"])
    step = weights["matrix"].abs().amax(1, keepdim=True) / 127
    assert ((restored["matrix"] - weights["matrix"]).abs() <= step / 2 + 1e-6).all()


def test_the_detector_keeps_the_best_of_overlapping_boxes_of_a_class():
    """One anchor in the middle of a 64 x 64 image and its neighbor, whose boxes overlap; another class stays."""
    anchors = np.full((layout.CLASSES + 4 * BINS, 64 + 16 + 4 + 1), -9.0, np.float32)
    anchors[layout.CLASSES :] = 0
    for anchor, label, logit in ((27, 3, 2.0), (28, 3, 1.0), (28 + 8, 5, 0.5)):
        anchors[label, anchor] = logit
        anchors[layout.CLASSES :].reshape(4, BINS, -1)[:, 3, anchor] = 20  # three strides to every side
    things = detect(anchors, 64, 64)
    assert things.classes.tolist() == [3, 5]
    np.testing.assert_allclose(things.scores, 1 / (1 + np.exp([-2.0, -0.5])), rtol=1e-5)
    np.testing.assert_allclose(things.boxes[0], [0, 0, 48 / 64, 48 / 64], atol=1e-4)
    assert len(detect(np.full_like(anchors, -9), 64, 64).scores) == 0


def test_colors_are_shares_of_the_pixels_and_means_of_cells():
    pixels = np.zeros((96, 96, 3), np.uint8)
    pixels[:, 48:, 0] = 255
    values = colors(pixels)
    np.testing.assert_allclose(values[:64].nonzero()[0], [0, 48])
    np.testing.assert_allclose(values[[0, 48]] ** 2, [0.5, 0.5])
    np.testing.assert_allclose(values[64:].reshape(3, 3, 3)[0], np.tile([0, 0.5, 1], (3, 1)), atol=1e-6)


def test_captions_say_how_sure_they_are_and_less_where_that_is_asked_for(capsys):
    sure = legenda.open("photo").caption(_CAT)
    assert 0 < sure.confidence < 1
    assert legenda.open("photo", consensus=False).caption(_CAT).confidence is None
    least = legenda.open("photo", min_score=0.9999).caption(_CAT)
    assert least.text == "a photograph of a cat"
    main(["caption", str(_CAT), "--format", "json", "--min-score", "0.0"])
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["captions"][0] == {"caption": sure.text, "score": ANY, "confidence": round(sure.confidence, 3)}
    for options in ({"min_score": 1.5}, {"min_score": 0.5, "consensus": False}):
        with pytest.raises(ConfigError, match="min_score"):
            legenda.open("photo", **options)


def test_packaged_document_frequencies_give_a_single_image_a_meaning():
    frequencies = coco_frequencies()
    documents = frequencies.documents
    assert documents > 100_000
    counts = [NgramCounts([words.split()]).look_up(frequencies)[-1] for words in ("a", "a cat", "cat zebra")]
    assert counts[0] > 0.9 * documents > counts[1] > counts[2]
    references = {"1": ["a cat on a bed", "a cat lies on a bed"]}
    assert evaluate({"1": "a cat on a bed"}, references, metrics=["CIDEr-D"])["CIDEr-D"] == 0
    scores = evaluate({"1": "a cat on a bed"}, references, metrics=["CIDEr-D"], df=frequencies)
    assert scores["CIDEr-D"] > 3
