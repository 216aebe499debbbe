"""Captions as rows of ids, and the data sets that recipes name."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from legenda.data.captions import CaptionDataset, EncodedCaptions, KarpathyData, ScenesData
from legenda.data.scenes import FEATURE_DIM
from legenda.errors import DataError
from legenda.features import write_store
from legenda.regions import Regions
from legenda.tasks import Captioning
from legenda.text import Vocabulary, ptb_tokenize

LETTERS = Vocabulary(("<end>", "<unk>", "a", "b", "c", "d", "e"))


def nothing(text: str) -> None:
    """Ignore progress messages."""


def captions(*references: tuple[str, ...]) -> CaptionDataset:
    def no_regions(positions: np.ndarray) -> Regions:
        raise AssertionError(f"captions need no regions, but those of {positions} were read")

    ids = tuple(f"image {number}" for number in range(len(references)))
    return CaptionDataset(ids, references, no_regions, "nowhere", "nobody")


def rows_of(encoded: EncodedCaptions, images: list[int], rows: int, seed: int = 0) -> list[list[list[int]]]:
    return encoded.rows(np.array(images), rows, torch.Generator().manual_seed(seed)).tolist()


def test_rows_are_all_different_while_there_are_enough():
    encoded = EncodedCaptions.of(captions(("a", "b", "c", "d", "e"), ("a", "b", "c")), LETTERS, max_caption_length=3)
    first: set[int] = set()
    for seed in range(30):
        (rows,) = rows_of(encoded, [0], 3, seed)
        words = [row[1] for row in rows]
        assert len(set(words)) == 3
        assert all(row[0] == row[2] == 0 for row in rows)
        first.add(words[0])
        (all_rows,) = rows_of(encoded, [1], 3, seed)
        assert {row[1] for row in all_rows} == {2, 3, 4}
    assert first == {2, 3, 4, 5, 6}  # every caption gets its turn


def write_karpathy(folder, *, boxes: bool = True, leave_out: tuple[str, ...] = ()) -> KarpathyData:
    """Eight invented images of two regions with three channels; the last of each split is without captions."""
    images, regions = [], []
    splits = ["train"] * 4 + ["val"] * 2 + ["test"] * 2
    for number, split in enumerate(splits):
        last = number in (3, 5, 7)
        sentences = [] if last else [{"raw": f"A dog number {number}."}, {"raw": "A dog runs!"}]
        images.append({"filename": f"{number}.jpg", "split": split, "sentences": sentences})
        places = np.array([[0.1, 0.1, 0.5, 0.5], [0.2, 0.3, 0.9, 1.0]])
        regions.append((str(number), np.full((2, 3), number, dtype=np.float32), places if boxes else None))
    annotations, features = folder / "dataset.json", folder / "features.safetensors"
    annotations.write_text(json.dumps({"images": images}))
    write_store(features, [entry for entry in regions if entry[0] not in leave_out], extractor="mine-0123abcd")
    return KarpathyData(annotations=annotations, features=features, min_count=2)


def test_karpathy_data_pairs_captions_with_the_features_of_the_same_image(tmp_path):
    opened = write_karpathy(tmp_path).open(nothing)
    assert (opened.feature_dim, opened.has_boxes) == (3, True)
    assert opened.train.extractor.name == opened.validation.extractor.name == "mine-0123abcd"
    assert opened.train.ids == ("0", "1", "2")  # image 3 has no captions
    assert opened.validation.ids == ("4",)
    assert opened.train.references[1] == ("A dog number 1.", "A dog runs!")
    assert opened.vocabulary.tokens == ("<end>", "<unk>", "a", "dog", "number", "runs")
    regions = opened.train.read(np.array([2, 0]))
    assert regions.features[:, :, 0].tolist() == [[2.0, 2.0], [0.0, 0.0]]
    assert regions.boxes is not None
    assert regions.boxes.shape == (2, 2, 4)
    assert regions.mask_or_ones.all()
    assert opened.train.score is None
    assert opened.train.source.endswith("features.safetensors")


def test_a_captioned_image_without_features_is_named(tmp_path):
    data = write_karpathy(tmp_path, leave_out=("1", "2"))
    with pytest.raises(DataError, match=r"features\.safetensors.*'1\.jpg'.* 2 of \d+"):
        data.open(nothing)
    assert len(data.split("val")) == 1  # another split is whole


def test_a_split_without_any_captions_has_all_its_images_but_teaches_nothing(tmp_path):
    data = write_karpathy(tmp_path)
    content = json.loads(data.annotations.read_text())
    for image in content["images"]:
        image["sentences"] = image["sentences"] if image["split"] == "train" else []
    data.annotations.write_text(json.dumps(content))
    test = data.split("test")
    assert (test.ids, test.references, test.missing_targets) == (("6", "7"), ((), ()), "captions")
    assert test.read(np.array([1])).features[0, 0].tolist() == [7.0] * 3
    assert data.split("train").missing_targets is None
    with pytest.raises(DataError, match="'val'"):
        data.open(nothing)
    with pytest.raises(DataError, match="image 0"):
        EncodedCaptions.of(captions((), ("a",)), LETTERS, max_caption_length=3)


def test_nan_in_the_features_is_found_when_training_opens_them_or_the_image_is_read(tmp_path):
    data = write_karpathy(tmp_path, leave_out=("7",))
    content = bytearray(data.features.read_bytes())
    content[-2:] = np.float16("nan").tobytes()  # the last feature of the last image, number 6
    data.features.write_bytes(content)
    with pytest.raises(DataError, match=r"features\.safetensors.*'6'"):
        data.split("test").read(np.array([0]))
    with pytest.raises(DataError, match=r"features\.safetensors.*'6'"):
        data.open(nothing)


def test_scenes_data_has_regions_references_and_scores():
    data = ScenesData(train=9, validation=3, test=6, seed=4)
    opened = data.open(nothing)
    assert (len(opened.train), len(opened.validation), len(data.split("test"))) == (9, 3, 6)
    assert (opened.feature_dim, opened.has_boxes) == (FEATURE_DIM, True)
    assert (opened.train.extractor.name, opened.train.source) == ("scenes", "scenes")
    assert opened.train.ids[0] == "train-4-000000"
    regions = opened.train.read(np.array([5, 1]))
    assert regions.features.shape == (2, 7, FEATURE_DIM)
    assert opened.train.score is not None
    first = {name: captions[0] for name, captions in zip(opened.train.ids, opened.train.references, strict=True)}
    assert opened.train.score(first)["truth"] == 1.0
    known = {word for captions in opened.train.references for caption in captions for word in caption.split()}
    assert set(opened.vocabulary.tokens) == {"<end>", "<unk>", *known}


def test_images_are_found_under_the_names_of_their_files(tmp_path):
    images = [{"filename": f"COCO_{n}.jpg", "cocoid": n, "split": s, "sentences": [{"raw": "A dog."}]}
              for n, s in ((7, "train"), (8, "val"))]  # fmt: skip
    (tmp_path / "d.json").write_text(json.dumps({"images": images}))
    write_store(tmp_path / "f.safetensors", [(f"COCO_{n}", np.full((1, 2), n), None) for n in (8, 7)], extractor="x")
    data = KarpathyData(annotations=tmp_path / "d.json", features=tmp_path / "f.safetensors", min_count=1)
    opened = data.open(nothing)
    assert opened.train.ids == ("7",)
    assert opened.train.read(np.array([0])).features.tolist() == [[[7.0, 7.0]]]


def test_tokens_of_the_file_are_the_words_of_the_model(tmp_path):
    data = write_karpathy(tmp_path)
    content = json.loads(data.annotations.read_text())
    for image in content["images"]:
        for sentence in image["sentences"]:
            sentence["tokens"] = ["A", "own-token", image["split"]]
    data.annotations.write_text(json.dumps(content))
    karpathy = data.replace(tokenizer="karpathy", min_count=1)
    opened = karpathy.open(nothing)
    assert opened.vocabulary.tokens == ("<end>", "<unk>", "A", "own-token", "train")
    val = karpathy.replace(vocabulary="train_val", special_tokens=("<unk>", "<pad>", "<begin>", "<end>"))
    assert val.open(nothing).vocabulary.tokens == (
        "<unk>", "<pad>", "<begin>", "<end>", "A", "own-token", "train", "val"
    )  # fmt: skip
    assert "test" in karpathy.replace(vocabulary="all").open(nothing).vocabulary.tokens
    del content["images"][0]["sentences"][0]["tokens"]
    data.annotations.write_text(json.dumps(content))
    notices: list[str] = []
    assert "number" in karpathy.open(notices.append).vocabulary.tokens
    assert any("lacks tokens; captions are split into runs of word characters" in notice for notice in notices)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.text("abcxy .", max_size=12), min_size=1, max_size=4), min_size=1, max_size=5),
    st.integers(1, 5),
)
def test_rows_are_what_the_vocabulary_makes_of_each_caption(references, max_caption_length):
    nonempty = [[ids for text in image if (ids := LETTERS.encode(ptb_tokenize(text)))] for image in references]
    split = captions(*map(tuple, references))
    if not all(nonempty):
        with pytest.raises(DataError, match="caption"):
            EncodedCaptions.of(split, LETTERS, max_caption_length)
        return
    encoded = EncodedCaptions.of(split, LETTERS, max_caption_length)
    assert encoded.counts.tolist() == [len(image) for image in nonempty]
    for image_rows, image in zip(encoded.tokens.tolist(), nonempty, strict=True):
        for row, ids in zip(image_rows, [*image, *[None] * (len(image_rows) - len(image))], strict=True):
            whole = [] if ids is None else [0, *ids[:max_caption_length], 0]
            assert row == whole + [-1] * (len(row) - len(whole))


def test_a_model_keeps_the_caption_length_of_its_release_unless_the_data_name_one():
    opened = ScenesData(train=4, validation=2).open(lambda _: None)
    sizes = {"dim": 16, "num_heads": 2}
    for data, length in ((opened, 17), (replace(opened, max_length=39), 39)):
        assert Captioning(data).create("xlan", sizes).generation_config.max_length == length
