"""Pickles of others, read without running anything that is in them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, ClassVar

from legenda.errors import UserError
from legenda.io import checked


class Unpickler(pickle.Unpickler):
    """Knows plain containers and numbers, and refuses every other name before it is imported."""

    allowed: ClassVar[dict[tuple[str, str], Any]] = {
        ("builtins", "long"): int,
        ("builtins", "unicode"): str,
        ("builtins", "set"): set,
        ("builtins", "frozenset"): frozenset,
        ("builtins", "int"): int,
        ("builtins", "float"): float,
        ("builtins", "list"): list,
        ("builtins", "dict"): dict,
        ("builtins", "str"): str,
    }
    """What each module and name in a pickle stands for."""

    def find_class(self, module: str, name: str) -> Any:
        module = {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(module, module)
        if (module, name) not in self.allowed:
            raise UserError(f"it holds {module}.{name}, which is no plain data and is not run")
        return self.allowed[module, name]


def read_plain_pickle(path: Path, remedy: str, reader: type[Unpickler] = Unpickler) -> Any:
    """What a pickle of plain data holds: numbers, texts and containers, and what else the `reader` knows.

    Raises UserError, naming the file, for anything else in it: nothing that a pickle names is imported or called but
    what the reader allows.
    """

    def read() -> Any:
        with path.open("rb") as file:
            return reader(file, encoding="latin-1").load()

    return checked(read, path, remedy)
