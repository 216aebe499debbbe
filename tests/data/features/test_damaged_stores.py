"""Damaged and unusable files of released features: each is refused in one sentence."""

import json

import h5py
import numpy as np
import pytest
from released_files import BOXED, PIXELS, features_of, tsv_line, write_cocobu, write_hdf5, write_sizes, write_tsv

from legenda.data.features.readers import open_features
from legenda.errors import DataError


def test_boxes_a_pixel_outside_are_cut_and_others_refused(tmp_path):
    boxes = PIXELS.copy()
    boxes[1, 2:] += 0.9
    (tmp_path / "f.tsv").write_text(
        tsv_line("1", features_of("1"), boxes) + "\n" + tsv_line("2", features_of("2"), PIXELS * 2) + "\n"
    )
    store = open_features(tmp_path / "f.tsv")
    packed = store.read(["1"])
    assert packed.boxes is not None
    assert packed.boxes[0, 1].tolist() == [0, 0, 1, 1]
    with pytest.raises(DataError, match=r"f\.tsv: image '2' has the box .* leaves 0\.\.1"):
        store.read(["2"])


def change(image: str, **arrays) -> dict[str, np.ndarray]:
    return {f"{image}_{name}": array for name, array in arrays.items()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (change("30", features=np.full((3, 8), np.nan)), "image '30' has features that are NaN"),
        (change("30", features=np.full((3, 8), np.inf, np.float16)), "image '30' has features that are NaN"),
        (change("30", features=np.ones((3, 9))), "image '30' has features of width 9, but the first image 8"),
        (change("30", features=np.ones((0, 8)), boxes=np.ones((0, 4))), "image '30' has features of shape"),
        (change("30", features=np.ones(8)), "image '30' has features of shape"),
        (change("30", boxes=PIXELS[:2]), "image '30' has boxes of shape .2, 4. for 3 regions"),
        (change("30", boxes=PIXELS * 0), "image '30' has the box .* is empty"),
        (change("30", boxes=PIXELS * np.nan), "image '30' has the box .* leaves"),
        (change("30", boxes=PIXELS * 1j), "image '30' cannot be read .values of type complex64, where real"),
        (change("30", size=np.zeros(2)), "image '30' cannot be read .an image of 0 x 0 pixels"),
        (change("30", boxes=None), "image '30' has no boxes, unlike the first image"),
        (change("30", grids=None, features=np.array([b"text"])), "image '30' cannot be read"),
    ],
)
def test_what_no_model_can_use_is_named(tmp_path, changes, message):
    path = write_hdf5(tmp_path / "f.hdf5")
    with h5py.File(path, "a") as file, np.errstate(all="ignore"):
        for name, array in changes.items():
            if name in file:
                del file[name]
            if array is not None:
                file[name] = array
    store = open_features(path)
    store.read(["9", "25"])
    with np.errstate(all="ignore"), pytest.raises(DataError, match=rf"f\.hdf5: {message}"):
        store.read(["9", "30"])
    with np.errstate(all="ignore"), pytest.raises(DataError, match=rf"f\.hdf5: {message}"):
        store.check()


@pytest.mark.parametrize("kind", BOXED)
def test_an_image_that_is_not_there_is_named_and_never_invented(tmp_path, kind):
    path, sizes = BOXED[kind](tmp_path)
    store = open_features(path, sizes=sizes)
    with pytest.raises(DataError, match="holds no features of image '26'"):
        store.read(["9", "26"])
    with pytest.raises(DataError, match="has 3 images"):
        store.read([3])


def test_a_half_written_hdf5_file_is_refused(tmp_path):
    content = write_hdf5(tmp_path / "f.hdf5").read_bytes()
    for share in (0.0, 0.1, 0.5, 0.99):
        (tmp_path / "cut.hdf5").write_bytes(content[: int(share * len(content))])
        with pytest.raises(DataError, match=r"cut\.hdf5"):
            open_features(tmp_path / "cut.hdf5").check()


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (-2, r"image '30' cannot be read"),
        (-131, r"image '30' cannot be read \(its line has 5 columns"),
        (-17, "image '30' has features of width 7, but the first image 8"),
    ],
)
def test_a_truncated_tsv_names_the_image(tmp_path, cut, message):
    path = write_tsv(tmp_path / "f.tsv")
    path.write_bytes(path.read_bytes()[:cut])
    store = open_features(path)
    store.read(["9", "25"])
    with pytest.raises(DataError, match=message):
        store.read(["30"])


def test_damaged_files_of_a_folder_are_named(tmp_path):
    folder = write_cocobu(tmp_path)
    whole = (folder / "25.npz").read_bytes()
    store = open_features(folder)
    for content in (b"", whole[: len(whole) // 2], b"no array at all", whole[:-40]):
        (folder / "25.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"cocobu_att: image '25' cannot be read"):
            store.read(["9", "25"])
    np.savez(folder / "25.npz", allow_pickle=True, feat=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match=r"'25' cannot be read .*allow_pickle=False"):
        store.read(["25"])
    np.savez(folder / "25.npz", one=np.ones(2), two=np.ones(2))
    with pytest.raises(DataError, match=r"it holds one, two, and neither feat nor x"):
        store.read(["25"])


def test_a_box_or_size_that_is_missing_is_named(tmp_path):
    folder, sizes = write_cocobu(tmp_path), write_sizes(tmp_path)
    (tmp_path / "cocobu_box" / "25.npy").unlink()
    with pytest.raises(DataError, match=r"image '25' cannot be read .*No such file"):
        open_features(folder, sizes=sizes).read(["25"])
    sizes.write_text(json.dumps({"images": []}))
    with pytest.raises(DataError, match=r"captions\.json has no size for image '9'"):
        open_features(folder, sizes=sizes).read(["9"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "has no 'images'"),
        ('{"images": [{"id": 1}]}', r"images\[0\] lacks"),
        ("{", "JSON"),
        ('{"images": [{"id": 1, "width": 1' + "0" * 400 + "}]}", "too many digits"),
    ],
)
def test_a_file_without_sizes_is_named(tmp_path, content, message):
    folder = write_cocobu(tmp_path)
    (tmp_path / "captions.json").write_text(content)
    with pytest.raises(DataError, match=rf"captions\.json.*{message}"):
        open_features(folder, sizes=tmp_path / "captions.json").read(["9"])


@pytest.mark.parametrize("name", ["f.tsv", "f.hdf5", "f.safetensors", "folder"])
def test_a_missing_store_is_named(tmp_path, name):
    with pytest.raises(DataError, match=f"{name} does not exist"):
        open_features(tmp_path / name)


def test_a_store_without_images_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "f.tsv").write_text("")
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file["something"] = np.ones(3)
    for name in ("folder", "f.tsv", "f.hdf5"):
        with pytest.raises(DataError, match=rf"{name} holds no features of any image; name "):
            open_features(tmp_path / name)


def test_an_image_that_stands_twice_is_refused(tmp_path):
    (tmp_path / "f.tsv").write_text("".join(tsv_line("7", features_of("7")) + "\n" for _ in range(2)))
    with pytest.raises(DataError, match="holds image '7' twice"):
        open_features(tmp_path / "f.tsv")
    folder = write_cocobu(tmp_path)
    np.save(folder / "25.npy", features_of("25"))
    with pytest.raises(DataError, match=r"25\.npy and 25\.npz for one image"):
        open_features(folder)


def test_a_heading_and_a_text_without_tabs(tmp_path):
    heading = "image_id\timage_w\timage_h\tnum_boxes\tboxes\tfeatures\n"
    (tmp_path / "f.tsv").write_text(heading + tsv_line("7", features_of("7")) + "\n\n")
    assert open_features(tmp_path / "f.tsv").ids == ("7",)
    (tmp_path / "f.tsv").write_text("a caption\n")
    with pytest.raises(DataError, match="line 1 has no tabs"):
        open_features(tmp_path / "f.tsv")
