"""Settings open expressions with the regions among which they choose, and score the boxes chosen."""

from pathlib import Path

import numpy as np
import pytest

from default_data import IMAGES, WIDTH, write_expressions, write_features
from legenda.data.scenes import FEATURE_DIM
from legenda.errors import DataError
from legenda.extras.grounding.data import EntitiesData, ExpressionDataset, RefsData, SceneExpressionsData, box_iou
from legenda.features.readers import DetectionStore


def nearest_boxes(split: ExpressionDataset) -> np.ndarray:
    """The overlap of the best of its regions with each expression's true box."""
    positions = np.arange(len(split))
    regions = split.read(positions)
    assert regions.boxes is not None
    pixels = regions.boxes.numpy() * split.sizes[positions][:, None, [0, 1, 0, 1]]
    return (box_iou(pixels, split.boxes[:, None]) * regions.mask_or_ones.numpy()).max(axis=1)


def test_scenes_are_expressions_whose_things_are_among_the_regions():
    data = SceneExpressionsData(train=30, validation=6, test=3)
    opened = data.open(lambda _: None)
    assert (len(opened.train), len(opened.validation), len(data.split("test"))) == (90, 18, 9)
    assert (opened.feature_dim, opened.max_text_length, opened.vectors) == (FEATURE_DIM, 7, None)
    assert opened.train.boxes.shape == (90, 4)
    assert (opened.train.sizes == 320).all()
    assert nearest_boxes(opened.train).min() > 0.85
    right = {name: box.tolist() for name, box in zip(opened.train.ids, opened.train.boxes, strict=True)}
    assert opened.train.score(right) == {"accuracy": 100.0, "near": 100.0, "size": 100.0, "plain": 100.0}


@pytest.fixture
def refs(tmp_path) -> RefsData:
    """Expressions of eight images of 100 x 100 pixels, and regions of which the first is the thing."""
    write_expressions(tmp_path, "unc")
    write_features(tmp_path / "features.safetensors", list(map(str, IMAGES)))
    files = {"refs": tmp_path / "refs(unc).p", "instances": tmp_path / "instances.json"}
    return RefsData(**files, features=(tmp_path / "features.safetensors",), validation="val")


def test_other_images_of_train_validate_by_default(refs):
    opened = refs.replace(validation=RefsData.model_fields["validation"].default).open(lambda _: None)
    assert (len(opened.train), len(opened.validation)) == (5, 1)


def test_refs_open_with_the_words_of_train(refs):
    opened = refs.open(lambda _: None)
    assert opened.vocabulary.tokens == ("<pad>", "<unk>", "the", "brown", "dog")
    assert (opened.feature_dim, opened.max_text_length, opened.train.extractor.name) == (WIDTH, 14, "a test")
    assert opened.train.boxes.tolist() == [[10, 10, 60, 60]] * 6
    assert opened.validation.sizes.tolist() == [[100, 100]]
    assert nearest_boxes(opened.train) == pytest.approx(np.ones(6))
    test = refs.split("test")
    assert test.ids == ("7",)
    assert test.read(np.array([0])).features.shape == (1, 4, WIDTH)
    with pytest.raises(DataError, match=r"'testB'.*refs\(unc\)\.p"):
        refs.split("testB")


def test_expressions_choose_among_boxes(refs):
    write_features(refs.features[0], list(map(str, IMAGES)), boxes=False)
    with pytest.raises(DataError, match=r"features\.safetensors.*boxes"):
        refs.open(lambda _: None)


def detections(folder: Path, **changes: np.ndarray) -> Path:
    arrays = {
        "filenames": np.array(["a.jpg", "b.jpg"]),
        "boxes": np.array([[[0, 0, 0.5, 0.5], [0, 0, 1, 1]], [[0.2, 0.2, 0.4, 0.4], [0, 0, 0, 0]]], np.float16),
        "classes": np.array([[2, 0], [1, 0]], np.uint8),
        "scores": np.array([[0.75, 0.5], [0.25, 0]], np.float16),
        "count": np.array([2, 1], np.uint8),
    }
    np.savez(folder / "detections.npz", **{**arrays, **changes})
    return folder / "detections.npz"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"count": np.array([2, 0])}, "'count' outside 1 to 2"),
        ({"count": np.array([2, 2])}, "image 'b' has the box .* which is empty"),
        ({"scores": np.zeros((2, 3))}, "shapes do not fit"),
        ({"filenames": np.array(["a.jpg", "a.png"])}, "holds image 'a' twice"),
    ],
)
def test_faults_in_detections_are_named(tmp_path, changes, problem):
    with pytest.raises(DataError, match=rf"detections\.npz.*{problem}"):
        list(DetectionStore(detections(tmp_path, **changes)).images())


def test_real_phrases_choose_among_real_detections(shared):
    """No choice can score above 62.9 %, the share of phrases with a detection that overlaps their box by half."""
    folder = shared / "data/flickr8k"
    data = EntitiesData(
        phrases=folder / "flickr30k_entities.json.gz",
        annotations=folder / "dataset_flickr8k.json.gz",
        features=(folder / "detections_nanodetplus.npz",),
    )
    opened = data.open(lambda _: None)
    assert (opened.feature_dim, len(opened.vocabulary)) == (81, 5149)
    assert (len(opened.train), len(opened.validation)) == (77898, 13123)
    everything = [*opened.train.examples, *opened.validation.examples]
    assert len({expression.id for expression in everything}) == len(everything)
    assert sum(len(expression.boxes) > 1 for expression in everything) == 16756
    first = everything[0]
    assert (first.tokens, first.box, first.size, first.kind) == (
        ("a", "child"),
        (8, 152, 108, 340),
        (375, 500),
        "people",
    )
    assert (nearest_boxes(opened.validation) >= 0.5).mean() == pytest.approx(0.629, abs=5e-4)
