"""Read pickles of the released codes without executing code in them."""

from __future__ import annotations

import argparse
import collections
from pathlib import Path
from typing import Any

import numpy as np

from legenda.errors import CheckpointError
from legenda.io import Unpickler, read_plain_pickle


class Plain:
    """A stand-in for an object of a released code's class: its attributes, and none of its methods."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state if isinstance(state, dict) else {})


def _rebuilt(kind: type, base: type, state: Any) -> Any:
    """Replace copyreg._reconstructor, with which old protocols create objects; return an empty plain object."""
    if base is not object or state is not None or kind not in (argparse.Namespace, Plain):
        raise CheckpointError(f"it builds {kind.__name__} as plain data does not; give a file of plain data")
    return kind()


def _bytes(text: str, encoding: str) -> bytes:
    """Replace _codecs.encode, with which protocol 2 stores bytes."""
    return text.encode("latin-1" if encoding.startswith("latin") else "utf-8")


def _dtype(code: str, *rest: Any) -> Any:
    """Return a NumPy dtype of numbers or text; objects would turn bytes into pointers."""
    made = np.dtype(code, *rest)
    if made.hasobject:
        raise CheckpointError("it contains NumPy arrays of objects, which are not plain data; give a file without them")
    return made


class _ReleasesUnpickler(Unpickler):
    """Allow also argparse namespaces, ordered dicts, counters, NumPy arrays, and the attributes of the releases'
    vocabulary classes.
    """

    allowed = Unpickler.allowed | {
        ("copyreg", "_reconstructor"): _rebuilt,
        ("_codecs", "encode"): _bytes,
        ("builtins", "object"): object,
        ("argparse", "Namespace"): argparse.Namespace,
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("collections", "Counter"): collections.Counter,
        ("collections", "defaultdict"): collections.defaultdict,
        ("data.vocab", "Vocab"): Plain,
        ("data.field", "TextField"): Plain,
        ("vocab", "Vocab"): Plain,
        ("numpy", "dtype"): _dtype,
        ("numpy", "ndarray"): np.ndarray,
        **{
            (f"numpy.{core}.multiarray", name): getattr(np._core.multiarray, name)
            for core in ("core", "_core")
            for name in ("scalar", "_reconstruct")
        },
    }


def read_pickle(path: Path) -> Any:
    """Return the contents of a pickle of plain data: numbers, strings, containers and NumPy arrays.

    Objects of the released codes' vocabulary classes become objects with their attributes only. Raise LegendaError,
    naming the file, for anything else: only the names in the list above are imported or called.
    """
    hint = "give the release's own file, or its vocabulary as a text with one word a line"
    return read_plain_pickle(path, hint, _ReleasesUnpickler)
