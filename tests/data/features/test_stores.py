"""Stores in the formats of released features, valid and damaged."""

import pickle
from pathlib import Path
from warnings import catch_warnings, simplefilter

import h5py
import lmdb
import numpy as np
import pytest
import torch
from released_files import (
    BOXED,
    HEIGHT,
    IDS,
    PIXELS,
    SHARES,
    WIDTH,
    features_of,
    write_cocobu,
    write_hdf5,
    write_sizes,
    write_tsv,
)

from legenda.data.features.readers import open_features
from legenda.errors import DataError


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
    store.check()
    for again in (store, pickle.loads(pickle.dumps(store))):
        packed = again.read(["30", "9", "30"])
        np.testing.assert_array_equal(packed.features, np.stack([features_of(image) for image in ("30", "9", "30")]))
        assert packed.boxes is not None
        np.testing.assert_allclose(packed.boxes, np.stack([SHARES] * 3), atol=1e-6)
        assert packed.mask.all()


@pytest.mark.parametrize("kind", BARE)
def test_every_kind_gives_the_same_regions_without_boxes(tmp_path, kind):
    store = open_features(BARE[kind](tmp_path))
    assert (store.has_boxes, store.extractor) == (False, "unnamed")
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
        with pytest.raises(DataError, match=r"cut\.lmdb cannot be read .*; name an LMDB data base"):
            open_features(tmp_path / "cut.lmdb")


def test_keys_of_an_lmdb_that_name_one_image_twice_are_refused(tmp_path):
    with lmdb.open(str(tmp_path / "b"), map_size=1 << 20) as base, base.begin(write=True) as writing:
        for key in (b"1", b"1.npy"):
            writing.put(key, b"")
    with pytest.raises(DataError, match=r"holds 1 and 1\.npy for one image"):
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


def test_images_with_fewer_regions_are_padded_and_masked(tmp_path):
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file["1_features"], file["2_features"] = features_of("1", 2), features_of("2", 5)
    packed = open_features(tmp_path / "f.hdf5").read(["1", "2"])
    assert packed.mask.sum(1).tolist() == [2, 5]
    assert not packed.features[0, 2:].any()
    np.testing.assert_array_equal(packed.features[0, :2], features_of("1", 2))


CORNERS = [[0, 0, 1 / 3, 0.5], [1 / 3, 0, 2 / 3, 0.5], [2 / 3, 0, 1, 0.5], [0, 0.5, 1 / 3, 1]]


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


def test_a_file_with_grids_and_regions_is_chosen_from(tmp_path):
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file["1_grids"], file["1_features"] = features_of("1", 4), features_of("1", 3)
    with pytest.raises(DataError, match=r"f\.hdf5 holds both.*f\.hdf5:grids or .*f\.hdf5:features"):
        open_features(tmp_path / "f.hdf5")
    assert open_features(f"{tmp_path}/f.hdf5:grids").read(["1"]).mask.sum() == 4
    assert open_features(f"{tmp_path}/f.hdf5:features").read(["1"]).mask.sum() == 3
    write_tsv(tmp_path / "f.tsv")
    with pytest.raises(DataError, match="not an HDF5 file"):
        open_features(f"{tmp_path}/f.tsv:grids")


def test_an_hdf5_file_is_known_by_its_content(tmp_path):
    assert len(open_features(write_hdf5(tmp_path / "features.dat"))) == 3


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
    with pytest.raises(DataError, match=r"image '9'.* a dict, where a grid of shape \(1, D, H, W\) is needed"):
        open_features(tmp_path).read(["9"])


def test_sizes_of_a_folder_of_annotations(tmp_path):
    folder = write_cocobu(tmp_path)
    (tmp_path / "annotations").mkdir()
    write_sizes(tmp_path / "annotations").rename(tmp_path / "annotations" / "captions_val2014.json")
    assert open_features(folder, sizes=tmp_path / "annotations").has_boxes
    with pytest.raises(DataError, match=r"cocobu_box holds no captions_\*\.json"):
        open_features(folder, sizes=tmp_path / "cocobu_box").read(["9"])


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


def test_boxes_that_overflow_are_named_without_a_warning(tmp_path):
    np.savez(tmp_path / "1.npz", x=np.ones((2, 3)), bbox=[[1, 2, 3, 1e300]] * 3, image_w=10, image_h=1e-300)
    with catch_warnings():
        simplefilter("error")
        with pytest.raises(DataError, match=r"image '1' has the box .*inf.*, which leaves 0\.\.1"):
            open_features(tmp_path).check()


def test_the_folder_of_the_features_may_have_no_name(tmp_path, monkeypatch):
    np.save(tmp_path / "1.npy", np.ones((2, 3)))
    monkeypatch.chdir(tmp_path)
    assert open_features("").ids == ("1",)
