"""Feature stores of every kind behind one interface, told apart by what they are."""

from collections.abc import Callable
from pathlib import Path

from legenda.errors import UserError
from legenda.features.base import FeatureStore
from legenda.features.folder import FolderStore
from legenda.features.hdf5 import Hdf5Store, split_kind
from legenda.features.lmdb import LmdbStore
from legenda.features.packed import PackedFeatureStore
from legenda.features.tsv import TsvStore

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"


def open_features(path: str | Path, *, sizes: Path | None = None) -> FeatureStore:
    """Opens a feature store: our packed safetensors, HDF5, Bottom-Up TSV, a folder of .npz or .npy files, or LMDB.

    An HDF5 file that holds grids and regions is chosen from by `file.hdf5:grids` or `file.hdf5:features`.
    sizes: COCO's annotations or a folder of them, which tell the sizes of pictures where boxes are in pixels and the
    store does not; without them such boxes are left out.
    Raises UserError, naming the file, when it is missing, damaged or none of these.
    """
    path = Path(path)
    place, kind = split_kind(path)
    opener = _opener(place)
    if kind is not None and opener is not Hdf5Store:
        raise UserError(f"{place} is no HDF5 file, so it has no kinds to choose from; leave out ':{kind}'")
    return PackedFeatureStore.open(path) if opener is None else opener(path, sizes)


def _opener(place: Path) -> Callable[[Path, Path | None], FeatureStore] | None:
    """The reader of a file or folder of others; None for one of our own."""
    if (place / "data.mdb").is_file() or (place.suffix == ".lmdb" and place.is_file()):
        return LmdbStore
    if place.is_dir():
        return FolderStore
    if place.suffix in (".h5", ".hdf5", ".he5") or _begins_with(place, _HDF5_MAGIC):
        return Hdf5Store
    if ".tsv" in place.suffixes:
        return TsvStore
    return None


def _begins_with(place: Path, magic: bytes) -> bool:
    try:
        with place.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False
