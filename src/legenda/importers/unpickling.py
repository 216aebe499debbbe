"""Pickles of the released codes, read without running anything that is in them."""

from __future__ import annotations

import argparse
import collections
from pathlib import Path
from typing import Any

from legenda.errors import UserError
from legenda.io import Unpickler, read_plain_pickle


class Plain:
    """An object of a class that is not ours: its attributes, and none of its methods."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state if isinstance(state, dict) else {})


def _rebuilt(kind: type, base: type, state: Any) -> Any:
    """What old protocols call to make an object: here only one of the plain kinds, empty."""
    if base is not object or state is not None or kind not in (argparse.Namespace, Plain):
        raise UserError(f"it builds {kind.__name__} in a way that plain data does not need")
    return kind()


def _bytes(text: str, encoding: str) -> bytes:
    """How protocol 2 writes bytes."""
    return text.encode("latin-1" if encoding.startswith("latin") else "utf-8")


def _dtype(code: str, *rest: Any) -> Any:
    """A numpy type of numbers or text; one of objects would make pointers of bytes."""
    import numpy

    made = numpy.dtype(code, *rest)
    if made.hasobject:
        raise UserError("it holds numpy arrays of objects, which are no plain data and are not read")
    return made


class _ReleasesUnpickler(Unpickler):
    """Knows also options, ordered and counting dictionaries, numpy's arrays, and the releases' own vocabulary classes,
    of which only the attributes are wanted.
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
    }

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name in ("scalar", "_reconstruct"):
            import numpy

            return getattr(numpy._core.multiarray, name)
        if (module, name) == ("numpy", "dtype"):
            return _dtype
        if (module, name) == ("numpy", "ndarray"):
            import numpy

            return numpy.ndarray
        return super().find_class(module, name)


def read_pickle(path: Path) -> Any:
    """What a pickle of plain data holds: numbers, texts, containers and numpy arrays.

    Objects of the released codes' own vocabulary classes come as their bare attributes. Raises UserError, naming the
    file, for anything else in it: nothing that a pickle names is imported or called but what stands in the list above.
    """
    hint = "give the release's own file, or its vocabulary as a text with one word a line"
    return read_plain_pickle(path, hint, _ReleasesUnpickler)
