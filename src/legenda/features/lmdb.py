"""LMDB data bases of AoANet and its kin: the key is the image, the value the content of its .npz or .npy file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from legenda.errors import import_extra
from legenda.features.folder import read_arrays
from legenda.features.per_image import PerImageStore
from legenda.io import verified

_WANTED = "name an LMDB data base with an .npz or .npy for every image"


class LmdbStore(PerImageStore):
    """An LMDB data base, a folder with data.mdb or a single file; keys that begin with "__" are no images."""

    threads: ClassVar[int] = 4

    def __init__(self, path: Path, sizes_file: Path | None = None) -> None:
        lmdb = import_extra("lmdb", "formats")
        modes = {"readonly": True, "lock": False, "readahead": False, "meminit": False}
        self._base: Any = verified(lambda: lmdb.open(str(path), subdir=path.is_dir(), **modes), path, _WANTED)
        with self._base.begin() as reading:
            keys = [bytes(key) for key in reading.cursor().iternext(values=False)]
        self._keys = {_image(key): key for key in keys if not key.startswith(b"__")}
        super().__init__(path, self._keys, sizes_file=sizes_file, wanted=_WANTED)

    def _load(self, image: str) -> tuple[np.ndarray, np.ndarray | None]:
        with self._base.begin(buffers=True) as reading:
            return read_arrays(io.BytesIO(reading.get(self._keys[image])), image, self.sizes)


def _image(key: bytes) -> str:
    return key.decode().removesuffix(".npz").removesuffix(".npy")
