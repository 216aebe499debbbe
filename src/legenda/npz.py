"""NumPy's files, read without pickles and without more memory than their size explains."""

import os
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from legenda.io import MAX_RATIO, decompression_limit

_ATTEMPTS = 3
"""Python 3.11 parses a header with a counter that threads share, and raises SystemError where it has changed."""


def load_arrays(file: BinaryIO | Path) -> np.ndarray | dict[str, np.ndarray]:
    """Return the array of an .npy, or the arrays of an .npz by name; raise any exception for a damaged file.

    Raise ValueError for an .npz whose arrays are much larger than the file.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return _load(file)
        except SystemError:
            if not isinstance(file, Path):
                file.seek(0)
    return _load(file)


def _load(file: BinaryIO | Path) -> np.ndarray | dict[str, np.ndarray]:
    loaded: Any = np.load(file, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded:
        check_inflation(loaded.zip)
        arrays = {name: loaded[name] for name in loaded.files}
    other = next((name for name, array in arrays.items() if not isinstance(array, np.ndarray)), None)
    if other is not None:
        raise ValueError(f"{other} is no array")
    return arrays


def check_inflation(archive: zipfile.ZipFile) -> None:
    """Raise ValueError for an archive whose members are much larger than its file."""
    size = sum(entry.file_size for entry in archive.infolist())
    if size > decompression_limit(archive.fp.seek(0, os.SEEK_END)):  # type: ignore[union-attr]
        raise ValueError(f"uncompressed it has {size / 2**20:,.0f} MiB, which is over {MAX_RATIO} times its size")
