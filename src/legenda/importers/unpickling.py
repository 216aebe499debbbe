"""Read pickles of the released codes without executing code in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from legenda.errors import CheckpointError
from legenda.plain_pickle import Attributes, Opaque, Unpickler, read_plain_pickle

NUMPY_GLOBALS = (
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")),
    *("numpy.ndarray", "numpy.dtype", "numpy.dtypes.UInt32DType"),
)
"""What pickles of NumPy's numbers, arrays and random states name. Their data are not needed, and NumPy itself builds
arrays of pointers from forged ones, so stand-ins replace them."""


def _reconstruct(kind: Any, base: Any, state: Any) -> Any:
    """Replace copyreg._reconstructor, with which old protocols create objects; return an empty plain object."""
    if base is not object or state is not None or not (isinstance(kind, type) and issubclass(kind, Opaque)):
        raise CheckpointError("it builds an object as plain data does not; give a file of plain data")
    return kind()


def _bytes(text: str, encoding: str) -> bytes:
    """Replace _codecs.encode, with which protocol 2 stores bytes."""
    return text.encode("latin-1" if encoding.startswith("latin") else "utf-8")


def _default_dict(*arguments: Any) -> dict[Any, Any]:
    """Replace collections.defaultdict; its factory is not needed to read it."""
    return dict(*arguments[1:])


class _ReleasesUnpickler(Unpickler):
    """Allow also namespaces, ordered dicts, counters and the releases' vocabulary classes, and skip NumPy's objects."""

    allowed = Unpickler.allowed | {
        ("copyreg", "_reconstructor"): _reconstruct,
        ("_codecs", "encode"): _bytes,
        ("builtins", "object"): object,
        ("collections", "OrderedDict"): dict,
        ("collections", "Counter"): dict,
        ("collections", "defaultdict"): _default_dict,
        ("argparse", "Namespace"): Attributes,
        ("data.vocab", "Vocab"): Attributes,
        ("data.field", "TextField"): Attributes,
        ("vocab", "Vocab"): Attributes,
        **{(module, name): Opaque for module, _, name in (path.rpartition(".") for path in NUMPY_GLOBALS)},
    }


def read_pickle(path: Path) -> Any:
    """Return the contents of a pickle of plain data: numbers, strings and containers.

    Objects of the releases' vocabulary classes become objects with their attributes only, and NumPy's objects lose
    their data. Raise LegendaError, naming the file, for anything else: only the names in the list above are called.
    """
    hint = "give the release's own file, or its vocabulary as a text with one word a line"
    return read_plain_pickle(path, hint, _ReleasesUnpickler)
