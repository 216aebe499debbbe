"""HDF5 files that lead to other files, or hold what is no feature."""

import h5py
import numpy as np
import pytest

from legenda.data.features.open import open_features
from legenda.errors import DataError

SECRET = np.arange(24, dtype=np.float32)


@pytest.mark.parametrize(
    "link",
    [h5py.ExternalLink("other.hdf5", "/2_features"), h5py.SoftLink("/1_features")],
)
def test_links_are_not_followed(tmp_path, link):
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["2_features"] = SECRET.reshape(3, 8)
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file["1_features"] = np.ones((3, 8))
        file["2_features"] = link
    with pytest.raises(DataError, match=r"f\.hdf5 cannot be read \(its 2_features is a link, perhaps to another"):
        open_features(tmp_path / "f.hdf5")


def test_values_outside_the_file_are_not_read(tmp_path):
    (tmp_path / "secret").write_bytes(SECRET.tobytes())
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["x"] = SECRET.reshape(3, 8)
    layout = h5py.VirtualLayout(shape=(3, 8), dtype="f4")
    layout[:] = h5py.VirtualSource(tmp_path / "other.hdf5", "x", shape=(3, 8))
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file.create_dataset("1_features", (3, 8), "f4", external=[(str(tmp_path / "secret"), 0, 96)])
        file.create_virtual_dataset("2_features", layout)
    store = open_features(tmp_path / "f.hdf5")
    for image in ("1", "2"):
        with pytest.raises(DataError, match=f"image '{image}' cannot be read .its values are in another file"):
            store.read([image])


@pytest.mark.parametrize(
    "values", [np.ones((3, 8), np.complex64), np.full((3, 8), b"1.5"), np.ones((3, 8), "i4,i4"), np.ones((3, 8), "V4")]
)
def test_values_that_are_no_real_numbers_are_refused(tmp_path, values):
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file["1_features"] = values
    with pytest.raises(DataError, match=r"image '1' cannot be read \(values of type .*, where real numbers are needed"):
        open_features(tmp_path / "f.hdf5").check()


@pytest.mark.parametrize("options", [{}, {"chunks": (1 << 15, 1 << 14), "maxshape": (None, None)}])
def test_data_sets_larger_than_features_are_not_allocated(tmp_path, options):
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file.create_dataset("1_features", (4, 8) if options else (1 << 30, 2048), "f4", **options)
    with pytest.raises(DataError, match=r"image '1' cannot be read \(it has over 256 MiB\)"):
        open_features(tmp_path / "f.hdf5").check()


def test_names_that_are_no_text_are_kept_as_those_of_files(tmp_path):
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file.create_dataset(b"\xff_features", data=np.ones((3, 8)))
    store = open_features(tmp_path / "f.hdf5")
    assert store.ids == ("\udcff",)
    assert store.read(["\udcff"]).features.shape == (1, 3, 8)


def test_many_chunks_without_values_are_not_read(tmp_path):
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file.create_dataset("1_features", (200_000, 4), "f4", chunks=(2, 4))
        file.create_dataset("2_features", (30, 4), "f4", data=np.ones((30, 4)), chunks=(1, 4), compression="gzip")
    store = open_features(tmp_path / "f.hdf5")
    with pytest.raises(DataError, match="image '1' cannot be read") as caught:
        store.read(["1"])
    assert "it has over 10000 chunks" in str(caught.value)


def test_the_extractor_is_text(tmp_path):
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file["1_features"] = np.ones((3, 8))
        file.attrs["extractor"] = np.nan
    with pytest.raises(DataError, match=r"f\.hdf5 has an 'extractor' that is not text"):
        open_features(tmp_path / "f.hdf5")
    (tmp_path / "f").mkdir()
    np.save(tmp_path / "f" / "1.npy", np.ones((3, 8)))
    (tmp_path / "f" / "legenda.json").write_text('{"extractor": 0.5}')
    with pytest.raises(DataError, match=r"'extractor' of .*legenda\.json is of type float, not str"):
        open_features(tmp_path / "f")
