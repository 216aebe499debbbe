"""Stores in the formats of released features, valid and damaged."""

import base64
import json
import pickle
from pathlib import Path

import h5py
import lmdb
import numpy as np
import pytest
import torch

from legenda.errors import DataError
from legenda.features import write_store
from legenda.features.readers import open_features

WIDTH, HEIGHT = 640, 480


PIXELS = np.array([[64, 48, 320, 240], [0, 0, 640, 480], [32, 0, 64, 480]], np.float32)
"""Boxes of an image of 640 x 480."""

SHARES = PIXELS / np.array([WIDTH, HEIGHT, WIDTH, HEIGHT])

IDS = ("9", "25", "30")


def features_of(image: str, count: int = 3, width: int = 8) -> np.ndarray:
    return np.random.default_rng(int(image)).standard_normal((count, width)).astype(np.float32)


def write_hdf5(path: Path, *, size: bool = True, boxes: bool = True) -> Path:
    with h5py.File(path, "w") as file:
        for image in IDS:
            file[f"{image}_features"] = features_of(image)
            if boxes:
                file[f"{image}_boxes"] = PIXELS
            if size:
                file[f"{image}_size"] = np.array([HEIGHT, WIDTH])
    return path


def write_relative_hdf5(path: Path) -> Path:
    """Write boxes in 0..1, beside the sizes of the images in the file or not."""
    with h5py.File(path, "w") as file:
        for image in IDS:
            file[f"{image}_features"], file[f"{image}_boxes"] = features_of(image), SHARES.astype(np.float32)
            if path.suffix == ".h5":
                file[f"{image}_size"] = np.array([HEIGHT, WIDTH])
    return path


def tsv_line(image: str, features: np.ndarray, boxes: np.ndarray = PIXELS) -> str:
    packed = [base64.b64encode(np.ascontiguousarray(part, "<f4")).decode() for part in (boxes, features)]
    return "\t".join([image, str(WIDTH), str(HEIGHT), str(len(boxes)), *packed])


def write_tsv(path: Path) -> Path:
    path.write_text("".join(tsv_line(image, features_of(image)) + "\n" for image in IDS))
    return path


def write_mcan(path: Path) -> Path:
    path.mkdir()
    for image in IDS:
        arrays = {"x": features_of(image).T, "bbox": PIXELS, "image_w": WIDTH, "image_h": HEIGHT, "num_bbox": 3}
        np.savez(path / f"{image}.jpg.npz", **arrays)
    return path


def write_sizes(folder: Path) -> Path:
    images = [{"id": int(image), "file_name": f"COCO_{image}.jpg", "width": WIDTH, "height": HEIGHT} for image in IDS]
    (folder / "captions.json").write_text(json.dumps({"images": images}))
    return folder / "captions.json"


def write_cocobu(folder: Path) -> Path:
    for name in ("cocobu_att", "cocobu_box"):
        (folder / name).mkdir()
    for image in IDS:
        np.savez(folder / "cocobu_att" / f"{image}.npz", feat=features_of(image))
        np.save(folder / "cocobu_box" / f"{image}.npy", PIXELS)
    return folder / "cocobu_att"


def write_native(path: Path) -> Path:
    write_store(path, [(i, features_of(i), SHARES) for i in IDS], extractor="ours-1", dtype="float32")
    return path


BOXED = {
    "native": lambda folder: (write_native(folder / "f.safetensors"), None),
    "hdf5": lambda folder: (write_hdf5(folder / "f.hdf5"), None),
    "hdf5 without sizes": lambda folder: (write_hdf5(folder / "f.h5", size=False), write_sizes(folder)),
    "relative hdf5": lambda folder: (write_relative_hdf5(folder / "f.hdf5"), None),
    "relative hdf5 with its sizes": lambda folder: (write_relative_hdf5(folder / "f.h5"), None),
    "relative hdf5 with other sizes": lambda folder: (write_relative_hdf5(folder / "f.hdf5"), write_sizes(folder)),
    "tsv": lambda folder: (write_tsv(folder / "f.tsv"), None),
    "tsv in parts": lambda folder: (write_tsv(folder / "f.tsv.0"), None),
    "mcan": lambda folder: (write_mcan(folder / "mcan"), None),
    "cocobu": lambda folder: (write_cocobu(folder), write_sizes(folder)),
}


def write_lmdb(path: Path, suffix: str = "") -> Path:
    source = write_cocobu(path.parent)
    base = lmdb.open(str(path), map_size=1 << 24)
    with base.begin(write=True) as writing:
        for image in IDS:
            writing.put(f"{image}{suffix}".encode(), (source / f"{image}.npz").read_bytes())
        writing.put(b"__len__", b"3")
    base.close()
    return path


BARE = {
    "hdf5 in pixels of unknown size": lambda folder: write_hdf5(folder / "f.hdf5", size=False),
    "hdf5": lambda folder: write_hdf5(folder / "f.hdf5", size=False, boxes=False),
    "cocobu": write_cocobu,
    "lmdb": lambda folder: write_lmdb(folder / "cocobu_att_lmdb"),
    "lmdb of files": lambda folder: write_lmdb(folder / "cocobu_att_lmdb", ".npz"),
}


@pytest.mark.parametrize("kind", BOXED)
def test_every_kind_gives_the_same_regions_with_boxes(tmp_path, kind):
    path, sizes = BOXED[kind](tmp_path)
    store = open_features(path, sizes=sizes)
    assert (sorted(store.ids), len(store), store.feature_dim, store.has_boxes) == (sorted(IDS), 3, 8, True)
    assert "25" in store
    assert "26" not in store
    list(store.images())
    for again in (store, pickle.loads(pickle.dumps(store))):
        packed = again.read(["30", "9", "30"])
        np.testing.assert_array_equal(packed.features, np.stack([features_of(image) for image in ("30", "9", "30")]))
        assert packed.boxes is not None
        np.testing.assert_allclose(packed.boxes, np.stack([SHARES] * 3), atol=1e-6)
        assert packed.mask.all()


@pytest.mark.parametrize("kind", BARE)
def test_every_kind_gives_the_same_regions_without_boxes(tmp_path, kind):
    store = open_features(BARE[kind](tmp_path))
    assert (store.has_boxes, store.extractor.name) == (False, "unnamed")
    np.testing.assert_array_equal(store.read(["25"]).features[0], features_of("25"))
    np.testing.assert_array_equal(store.read([store.index("25")]).features[0], features_of("25"))


class Reads(torch.utils.data.Dataset):
    """The same images of several stores; top-level, for processes that are spawned."""

    def __init__(self, stores):
        self.stores = stores

    def __len__(self):
        return len(self.stores)

    def __getitem__(self, index):
        return torch.from_numpy(self.stores[index].read(list(IDS)).features)


def test_a_truncated_lmdb_is_refused(tmp_path):
    base = write_lmdb(tmp_path / "cocobu_att_lmdb") / "data.mdb"
    content = base.read_bytes()
    for share in (0, 0.1, 0.5, 0.9):
        (tmp_path / "cut.lmdb").write_bytes(content[: int(share * len(content))])
        with pytest.raises(DataError, match=r"cut\.lmdb"):
            open_features(tmp_path / "cut.lmdb")


def test_keys_of_an_lmdb_that_name_one_image_twice_are_refused(tmp_path):
    with lmdb.open(str(tmp_path / "b"), map_size=1 << 20) as base, base.begin(write=True) as writing:
        for key in (b"1", b"1.npy"):
            writing.put(key, b"")
    with pytest.raises(DataError, match=r"1 and 1\.npy"):
        open_features(tmp_path / "b")


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_every_kind_is_opened_twice_and_read_in_processes_after_the_parent(tmp_path, method):
    stores = []
    for number, make in enumerate([*BOXED.values(), *BARE.values()]):
        folder = tmp_path / str(number)
        folder.mkdir()
        path, sizes = found if isinstance(found := make(folder), tuple) else (found, None)
        stores += [open_features(path, sizes=sizes), open_features(path, sizes=sizes)]
    data = Reads(stores)
    expected = [data[index] for index in range(len(data))]
    workers = 2 if method == "fork" else 1
    options = {"num_workers": workers, "multiprocessing_context": method, "timeout": 30}
    loaded = list(torch.utils.data.DataLoader(data, batch_size=None, **options))
    torch.testing.assert_close(loaded, expected, rtol=0, atol=0)


CORNERS = [[0, 0, 1 / 3, 0.5], [1 / 3, 0, 2 / 3, 0.5], [2 / 3, 0, 1, 0.5], [0, 0.5, 1 / 3, 1]]


def test_metadata_of_other_programs_is_no_image(tmp_path):
    """A Mac leaves a file ._9.npz beside 9.npz on disks of other systems and in archives."""
    folder = write_cocobu(tmp_path)
    (folder / "._9.npz").write_bytes(b"Mac OS X")
    assert sorted(open_features(folder).ids) == sorted(IDS)


def test_the_folder_one_is_in_has_its_boxes_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(write_cocobu(tmp_path))
    assert open_features(".", sizes=write_sizes(tmp_path)).has_boxes


def test_one_array_of_all_images_is_refused_before_it_fills_the_memory(tmp_path):
    """The layout of bottom-up-attention-vqa: image_features (82783, 36, 2048) is no image of the name image."""
    with h5py.File(tmp_path / "train36.hdf5", "w") as file:
        file.create_dataset("image_features", (20_000, 36, 8), "f4")
        file.create_dataset("spatial_features", (20_000, 36, 6), "f4")
    with pytest.raises(DataError, match="20000, 36, 8"):
        open_features(tmp_path / "train36.hdf5")


def test_grids_have_the_boxes_of_their_cells_line_by_line(tmp_path):
    grid = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file["1_grids"] = grid
    (tmp_path / "folder").mkdir()
    np.savez(tmp_path / "folder" / "1.npz", feat=grid)
    for path in (tmp_path / "f.hdf5", tmp_path / "folder"):
        packed = open_features(path).read(["1"])
        assert packed.boxes is not None
        np.testing.assert_allclose(packed.boxes[0, :4], CORNERS, atol=1e-6)
        np.testing.assert_array_equal(packed.features[0], grid.reshape(6, 4))


@pytest.mark.parametrize("ending", ["grids", "features"])
def test_49_cells_in_one_list_are_a_grid_of_7_by_7(tmp_path, ending):
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        for image in IDS:
            file[f"{image}_{ending}"] = features_of(image, 49)
    packed = open_features(tmp_path / "f.hdf5").read(["9"])
    assert packed.boxes is not None
    np.testing.assert_allclose(packed.boxes[0, 8], [1 / 7, 1 / 7, 2 / 7, 2 / 7], atol=1e-6)


@pytest.mark.parametrize("zipped", [True, False])
def test_grids_of_grid_feats_vqa_are_pooled_to_7_by_7(tmp_path, zipped):
    grids = torch.randn(2, 1, 5, 14, 21)
    for image, grid in zip(IDS, grids, strict=False):
        torch.save(grid, tmp_path / f"{image}.pth", _use_new_zipfile_serialization=zipped)
    store = open_features(tmp_path)
    read = store.read(IDS[:2])
    expected = grids[:, 0].unflatten(2, (7, 2)).unflatten(4, (7, 3)).mean((3, 5)).flatten(2).transpose(1, 2)
    np.testing.assert_allclose(read.features, expected, atol=1e-6)
    np.testing.assert_allclose(read.boxes[0, 8], [1 / 7, 1 / 7, 2 / 7, 2 / 7], atol=1e-6)
    torch.save({"model": grids[0]}, tmp_path / "9.pth")
    with pytest.raises(DataError, match=r"'9'.*dict"):
        open_features(tmp_path).read(["9"])


def test_bottom_up_features_are_read_in_either_orientation(tmp_path):
    """MCAN's files have the channels first, Rosita's the regions; boxes have another name there."""
    for image, turned in zip(IDS, (True, False, False), strict=True):
        features = features_of(image, width=2048)
        boxes = {"bbox" if turned else "boxes": PIXELS}
        np.savez(
            tmp_path / f"{image}.npz", x=features.T if turned else features, image_w=WIDTH, image_h=HEIGHT, **boxes
        )
    store = open_features(tmp_path)
    for image in IDS:
        read = store.read([store.index(image)])
        assert np.array_equal(read.features[0], features_of(image, width=2048))
        assert read.boxes[0] == pytest.approx(SHARES)


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
    with pytest.raises(DataError, match=r"f\.tsv.*'2'"):
        store.read(["2"])


def change(image: str, **arrays) -> dict[str, np.ndarray]:
    return {f"{image}_{name}": array for name, array in arrays.items()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (change("30", features=np.full((3, 8), np.nan)), "image '30' has features that are NaN"),
        (change("30", features=np.ones((3, 9))), "image '30' has features of width 9, but the first image 8"),
        (change("30", boxes=PIXELS * 0), "image '30' has the box .* is empty"),
        (change("30", size=np.zeros(2)), "image '30' cannot be read .an image of 0 x 0 pixels"),
        (change("30", boxes=None), "image '30' has no boxes, unlike the first image"),
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
        list(store.images())


@pytest.mark.parametrize("name", ["f.safetensors", "folder", "f.hdf5", "f.hdf5:grids", "f.tsv", "f.npz", "f.lmdb"])
def test_a_store_that_does_not_exist_names_the_commands_that_write_one(tmp_path, name):
    with pytest.raises(DataError, match=r"does not exist.*legenda extract.*legenda convert"):
        open_features(tmp_path / name)


@pytest.mark.parametrize("kind", BOXED)
def test_an_image_that_is_not_there_is_named_and_never_invented(tmp_path, kind):
    path, sizes = BOXED[kind](tmp_path)
    store = open_features(path, sizes=sizes)
    with pytest.raises(DataError, match="'26'"):
        store.read(["9", "26"])
    with pytest.raises(DataError, match="3 images"):
        store.read([3])
