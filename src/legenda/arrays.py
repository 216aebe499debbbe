"""Tensors of safetensors files as NumPy arrays, for what runs without PyTorch; see `models.checkpoint.load_tensors`."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import safetensors

from legenda.errors import CheckpointError, DataError
from legenda.io import verified


def load_arrays(path: Path, hint: str) -> dict[str, np.ndarray]:
    """Return the tensors of a safetensors file by name, matrices of int8 with a scale of each row as float32.

    Raise CheckpointError with the hint where the file cannot be read, or its values are not those of its checksum.
    """
    try:
        return verified(lambda: _read_arrays(path), path, hint)
    except DataError as error:
        raise CheckpointError(str(error)) from error


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    with safetensors.safe_open(path, framework="np") as file:
        expected = (file.metadata() or {}).get("checksum")
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    crc = 0
    for name, array in sorted(stored.items()):
        crc = zlib.crc32(f"{name} torch.{array.dtype} {array.shape}\n".encode(), crc)
        crc = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, crc)
    if expected not in (None, f"crc32:{crc:08x}"):
        raise ValueError("its values differ from its checksum")
    scales = {name + "_scale" for name, array in stored.items() if array.dtype == np.int8} & stored.keys()
    return {
        name: array * stored[f"{name}_scale"].reshape(-1, *[1] * (array.ndim - 1))
        if f"{name}_scale" in scales
        else array
        for name, array in stored.items()
        if name not in scales
    }
