"""Files: atomic writing, JSON and text, and pickles of plain data, in which nothing is run."""

import json
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from legenda.errors import UserError


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path in the same folder; on a clean exit it is renamed to `path`, else removed.

    Raises UserError, naming the file, when the system refuses the write (read-only folder, full disk).
    """
    path = Path(path)
    partial: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
        os.close(handle)
        partial = Path(name)
        yield partial
        partial.chmod(0o666 & ~_umask())
        partial.replace(path)
    except OSError as error:
        raise UserError(
            f"{path} could not be written ({error.strerror or error}); free some space or name another folder"
        ) from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: str | Path, text: str) -> None:
    """Writes `text` in UTF-8, whole or not at all."""
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Writes `value` as indented JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_text(path: str | Path, hint: str = "check the path") -> str:
    """Reads a UTF-8 text file; UserError names the file and the `remedy` when that fails."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}); {hint}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a UTF-8 text file; {hint}") from error


def read_json(path: str | Path, hint: str = "check the path") -> Any:
    """Reads a JSON file; UserError names the file, the line and the `remedy` when that fails."""
    return parse_json(read_text(path, hint), path, hint)


def parse_json(text: str, path: str | Path, hint: str) -> Any:
    """Parses JSON that came from `path`."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not valid JSON (line {error.lineno}: {error.msg}); {hint}") from error


def verified(read: Callable[[], Any], path: str | Path, hint: str) -> Any:
    """Runs `read`, a library's reader of a binary file, and turns its failure into a UserError about `path`."""
    try:
        return read()
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; {hint}") from error
    except Exception as error:  # readers of foreign files fail in every way there is
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} cannot be read ({reason}); {hint}") from error


class Unpickler(pickle.Unpickler):
    """Allow plain containers and numbers, and refuse every other name before it is imported."""

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


def read_plain_pickle(path: Path, hint: str, reader: type[Unpickler] = Unpickler) -> Any:
    """Return what a pickle of plain data holds: numbers, texts and containers, and what else the `reader` allows.

    Raises UserError, naming the file, for anything else in it: nothing that a pickle names is imported or called but
    what the reader allows.
    """

    def read() -> Any:
        with path.open("rb") as file:
            return reader(file, encoding="latin-1").load()

    return verified(read, path, hint)
