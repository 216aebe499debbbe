"""Opening of feature stores of every format, which is detected from the file or folder."""

from collections.abc import Callable
from pathlib import Path

from legenda.data.features.base import FeatureStore
from legenda.data.features.folder import FolderStore
from legenda.data.features.hdf5 import Hdf5Store, split_kind
from legenda.data.features.lmdb import LmdbStore
from legenda.data.features.packed import PackedFeatureStore
from legenda.data.features.sharded import MANIFEST, ShardedStore
from legenda.data.features.tsv import TsvStore
from legenda.errors import DataError
from legenda.plugins import Registry

STORES: Registry[Callable[[Path, Path | None], FeatureStore]] = Registry("feature store", {})
"""Functions of users that open a feature store, by the suffix of its path; see `open_features` for their arguments."""

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"


def open_features(path: str | Path, *, sizes: Path | None = None) -> FeatureStore:
    """Open a feature store: packed safetensors or shards, HDF5, Bottom-Up TSV, a folder of .npz, .npy or .pth, or LMDB.

    An HDF5 file that holds grids and regions is chosen from by `file.hdf5:grids` or `file.hdf5:features`.
    sizes: COCO's annotations or a folder of them, with the sizes of images where boxes are in pixels and the
    store has no sizes; without them such boxes are left out.
    Raises DataError, naming the file, when it is missing, damaged or none of these.
    """
    path = Path(path)
    file_path, kind = split_kind(path)
    opener = _opener(file_path)
    if kind is not None and opener is not Hdf5Store:
        raise DataError(f"{file_path} is not an HDF5 file, so it has no kinds to choose from; leave out ':{kind}'")
    return PackedFeatureStore(path) if opener is None else opener(path, sizes)


def _opener(file_path: Path) -> Callable[[Path, Path | None], FeatureStore] | None:
    """Return the class that reads a file or folder; None for the packed format."""
    if file_path.suffix in STORES:
        return STORES.get(file_path.suffix)
    if (file_path / "data.mdb").is_file() or (file_path.suffix == ".lmdb" and file_path.is_file()):
        return LmdbStore
    if file_path.is_dir():
        return ShardedStore if (file_path / MANIFEST).is_file() else FolderStore
    if file_path.suffix in (".h5", ".hdf5", ".he5") or _starts_with(file_path, _HDF5_MAGIC):
        return Hdf5Store
    if ".tsv" in file_path.suffixes:
        return TsvStore
    return None


def _starts_with(file_path: Path, magic: bytes) -> bool:
    try:
        with file_path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False
