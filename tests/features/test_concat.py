"""Where images of a data set are in stores: one rule for names, and ambiguity is refused."""

from pathlib import Path

import numpy as np
import pytest

from legenda.errors import DataError
from legenda.features import write_store
from legenda.features.base import ConcatFeatureStore
from legenda.features.readers import open_stores

COCO = "COCO_train2014_000000000009"


def make_stores(folder: Path, *ids: tuple[str, ...]) -> ConcatFeatureStore:
    """Return stores of these images; the features of image i of all of them are i."""
    paths, count = [], 0
    for number, names in enumerate(ids):
        paths.append(folder / f"{number}.safetensors")
        write_store(paths[-1], [(n, np.full((2, 3), count + k), None) for k, n in enumerate(names)], extractor="own")
        count += len(names)
    return open_stores(paths)


def test_images_of_several_stores_are_read_in_the_order_asked_for(tmp_path):
    store = make_stores(tmp_path, ("a", COCO), ("000000000025", "7"))
    read = store.reader(["7", "9", "25", "a", "7"])
    assert read(np.array([0, 1, 2, 3, 4, 1])).features[:, 0, 0].tolist() == [3, 1, 2, 0, 3, 1]


def test_an_id_precedes_a_file_name_and_a_file_name_a_number(tmp_path):
    index = make_stores(tmp_path, ("9", COCO, "photo"))
    assert index.find("9", f"train2014/{COCO}.jpg") == (0, 0)
    assert index.find("5", f"train2014/{COCO}.jpg") == (0, 1)
    assert index.find("5", "photo.jpg") == (0, 2)
    assert index.find("25") is None


@pytest.mark.parametrize("names", [("IMG_0007", "DSC_0007"), ("IMG_0007",), ("0007",), ("image_7",), ("COCO_7",)])
def test_digits_at_the_end_of_another_name_are_no_number_of_coco(tmp_path, names):
    with pytest.raises(DataError, match="'7'"):
        make_stores(tmp_path, names).reader(["7"])


@pytest.mark.parametrize("second", ["COCO_val2014_000000000009", "000000000009"])
@pytest.mark.parametrize("together", [True, False])
def test_two_names_of_coco_with_one_number_are_refused(tmp_path, second, together):
    store = make_stores(tmp_path, (COCO, second)) if together else make_stores(tmp_path, (COCO,), (second,))
    with pytest.raises(DataError, match=f"'9'.*{COCO}.*{second}"):
        store.reader(["9"])
    store.reader([COCO, second])


def test_two_images_of_one_entry_are_refused(tmp_path):
    """Files of equal names in two folders, of which a store holds one."""
    store = make_stores(tmp_path, ("a", "y", COCO))
    with pytest.raises(DataError, match="'x' and 'z'"):
        store.reader(["x", "y", "z"], ["p/a.jpg", "q/a.jpg", "r/a.jpg"])
    read = store.reader(["x", "y", "x"], ["p/a.jpg", "q/a.jpg", "p/a.jpg"])
    assert read(np.array([0, 1, 2])).features[:, 0, 0].tolist() == [0, 1, 0]


def test_stores_of_other_features_are_refused(tmp_path):
    write_store(tmp_path / "a.safetensors", [("a", np.ones((2, 3)), None)], extractor="own")
    write_store(tmp_path / "b.safetensors", [("b", np.ones((2, 4)), None)], extractor="own")
    with pytest.raises(DataError, match="extractor"):
        open_stores([tmp_path / "a.safetensors", tmp_path / "b.safetensors"])
    with pytest.raises(DataError):
        open_stores([])
