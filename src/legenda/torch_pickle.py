"""Checkpoints of torch.save, read without executing code in them, and without more memory than their size explains."""

from __future__ import annotations

import os
import pickle
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from legenda.errors import DataError
from legenda.io import verified
from legenda.npz import check_inflation
from legenda.plain_pickle import Opaque, Unpickler

_PICKLES = 5
"""Pickles at the start of a file of the old format: magic number, protocol, system, content and names of storages."""


class _Screen(Unpickler):
    """Read the structure of a pickle, with stand-ins for all objects: torch's own loader limits neither depth nor size.

    Deep tuples overflow the stack of the process there.
    """

    allowed: ClassVar[dict[tuple[str, str], Any]] = {
        ("collections", "OrderedDict"): OrderedDict,
        ("builtins", "set"): set,
    }
    dispatch: ClassVar[dict[int, Callable[..., None]]] = dict(Unpickler.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        """Return a stand-in for all objects but containers."""
        return self.allowed.get((module, name), Opaque)

    def persistent_load(self, _: Any) -> Opaque:
        """Return a stand-in for a storage."""
        return Opaque()

    def load_build(self) -> None:
        """Leave out the state of an object."""
        self.stack.pop()

    dispatch[pickle.BUILD[0]] = load_build


def load_checkpoint(path: Path, hint: str) -> Any:
    """Return the content of a checkpoint on the CPU; raise DataError for one that holds more than plain data."""
    import torch

    def read() -> Any:
        with path.open("rb") as file:
            _screen(file)
        try:
            with warnings.catch_warnings(action="ignore"):
                return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:  # whose message advises to execute the code
            raise DataError("it holds more than tensors, numbers and containers") from error

    return verified(read, path, hint)


def _screen(file: BinaryIO) -> None:
    """Raise an exception for a checkpoint that is deep, or larger than it seems."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            check_inflation(archive)
            for entry in archive.infolist():  # torch ignores case, and of equal names may read any
                if entry.filename.lower().endswith("data.pkl"):
                    _Screen(BytesIO(archive.read(entry))).load()
        return
    file.seek(0)
    size = os.fstat(file.fileno()).st_size
    for _ in range(_PICKLES):
        if file.tell() < size:
            _Screen(file).load()
