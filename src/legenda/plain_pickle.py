"""Pickles of plain data, read without executing code in them and without more memory than their size explains."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from legenda.errors import DataError
from legenda.io import verified

_MAX_TUPLE_DEPTH = 100
"""Nesting of tuples, whose hash is recursive: deeper ones overflow the stack of the process."""


_MAX_LONG_INTEGERS = 1_000
"""Integers of more than 64 bits, whose hashes are as equal as the file's author wants, so that dicts become slow."""


class Opaque:
    """A stand-in for an object of another class, without any of its data."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...


class Attributes(Opaque):
    """A stand-in for an object of another class, with its attributes and none of its methods."""

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update({name: value for name, value in state.items() if isinstance(name, str)})


_Base: Any = pickle._Unpickler  # type: ignore[attr-defined]  # Python's, with its attributes


class Unpickler(_Base):
    """Unpickle plain containers and numbers; refuse every other global before it is imported.

    The base class is the unpickler written in Python: that in C allocates what an index or a length in the file asks
    for. States are set on stand-ins only, and all arguments of calls together have no more elements than the file has
    bytes.
    """

    allowed: ClassVar[dict[tuple[str, str], Any]] = {
        ("builtins", "set"): set,
        ("builtins", "frozenset"): frozenset,
        ("builtins", "long"): int,
        **{("builtins", name): Opaque for name in ("int", "float", "list", "dict", "str", "unicode")},
    }
    """The object that replaces each global, by module and name; those of the last line are factories of defaultdict."""

    dispatch: ClassVar[dict[int, Callable[..., None]]] = dict(_Base.dispatch)

    def __init__(self, file: Any, **options: Any) -> None:
        super().__init__(file, **options)
        start = file.tell()
        self._budget = file.seek(0, os.SEEK_END)
        file.seek(start)
        self._depth: dict[int, int] = {}
        self._long_integers = 0

    def find_class(self, module: str, name: str) -> Any:
        """Return what replaces a global; raise DataError for one that is not allowed."""
        module = {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(module, module)
        if (module, name) not in self.allowed:
            raise DataError(f"it holds {module}.{name}, which is not plain data and is not imported")
        return self.allowed[module, name]

    def load_reduce(self) -> None:
        """Call an allowed function."""
        self._budget -= sum(len(value) for value in self.stack[-1] if hasattr(value, "__len__"))
        if self._budget < 0:
            raise DataError("it builds more than its size explains")
        super().load_reduce()

    def load_newobj(self) -> None:
        """Create a stand-in."""
        self._check_stand_in(self.stack[-2])
        super().load_newobj()

    def _instantiate(self, klass: Any, args: Any) -> None:
        self._check_stand_in(klass)
        super()._instantiate(klass, args)

    def _check_stand_in(self, kind: Any) -> None:
        if not (isinstance(kind, type) and issubclass(kind, Opaque)):
            raise DataError("it creates an object as plain data does not")

    def load_newobj_ex(self) -> None:
        """Refuse objects with keyword arguments."""
        raise DataError("it creates an object as plain data does not")

    def load_build(self) -> None:
        """Set the state of a stand-in."""
        state = self.stack.pop()
        if not isinstance(self.stack[-1], Opaque):
            raise DataError(f"it sets attributes of a {type(self.stack[-1]).__name__}, which is not plain data")
        self.stack[-1].__setstate__(state)

    def load_bytearray8(self) -> None:
        """Refuse a length for which memory would be allocated before the data are read."""
        raise DataError("it holds a bytearray, which is not plain data")

    def append_tuple(self, load: Callable[[Any], None]) -> None:
        """Load a tuple, unless it is nested too deep."""
        load(self)
        depth = 1 + max((self._depth[id(item)] for item in self.stack[-1] if type(item) is tuple and item), default=0)
        if depth > _MAX_TUPLE_DEPTH:
            raise DataError("its tuples are nested too deep")
        self._depth[id(self.stack[-1])] = depth

    def append_integer(self, load: Callable[[Any], None]) -> None:
        """Load an integer, unless there are many long ones."""
        load(self)
        self._long_integers += isinstance(self.stack[-1], int) and self.stack[-1].bit_length() > 64
        if self._long_integers > _MAX_LONG_INTEGERS:
            raise DataError("it holds many integers of more than 64 bits")

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex
    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8
    for _code in (pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3):
        dispatch[_code[0]] = lambda self, load=dispatch[_code[0]]: self.append_tuple(load)
    for _code in (pickle.INT, pickle.LONG, pickle.LONG1, pickle.LONG4):
        dispatch[_code[0]] = lambda self, load=dispatch[_code[0]]: self.append_integer(load)


def read_plain_pickle(path: Path, hint: str, unpickler: type[Unpickler] = Unpickler) -> Any:
    """Return the content of a pickle of plain data: numbers, strings, containers, and what else `unpickler` allows.

    Raise DataError, naming the file, for anything else: only the globals that the unpickler allows are used.
    """

    def read() -> Any:
        with path.open("rb") as file:
            return unpickler(file, encoding="latin-1").load()

    return verified(read, path, hint)
