"""LMDB data bases of AoANet and its kin: the key is the image, the value the content of its .npz or .npy file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import ClassVar

import numpy as np

from legenda.data.features.folder import read_arrays
from legenda.data.features.lmdb_file import LmdbFile
from legenda.data.features.per_image import PerImageStore
from legenda.errors import DataError
from legenda.io import verified

_WANTED = "name an LMDB data base with an .npz or .npy for every image"


class LmdbStore(PerImageStore):
    """An LMDB data base, a folder with data.mdb or a single file; keys that begin with "__" are no images."""

    threads: ClassVar[int] = 4

    def __init__(self, path: Path, sizes_file: Path | None = None) -> None:
        self._base = verified(lambda: LmdbFile(path / "data.mdb" if path.is_dir() else path), path, _WANTED)
        self._keys: dict[str, bytes] = {}
        for key in self._base.keys:
            if key.startswith(b"__"):
                continue
            image = verified(key.decode, path, _WANTED).removesuffix(".npz").removesuffix(".npy")
            if (other := self._keys.setdefault(image, key)) != key:
                raise DataError(f"{path} holds {other.decode()} and {key.decode()} for one image; {_WANTED}")
        super().__init__(path, self._keys, sizes_file=sizes_file, wanted=_WANTED)

    def _load(self, image: str) -> tuple[np.ndarray, np.ndarray | None]:
        return read_arrays(io.BytesIO(self._base.get(self._keys[image])), image, self.sizes)
