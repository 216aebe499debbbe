"""Files: atomic writes, locks, text, JSON and arrays with errors of one sentence, and pickles of plain data only."""

from __future__ import annotations

import atexit
import gc
import glob
import gzip
import hashlib
import json
import math
import os
import pickle
import re
import secrets
import shutil
import stat
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from safetensors import SafetensorError, safe_open

from legenda.errors import CheckpointError, DataError, first_line

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
_MAX_BYTES = 1 << 28
"""Bytes that a file may always hold, however well it is compressed."""
_MAX_RATIO = 20
"""Bytes for every byte of a larger file; arrays of floats, annotations and text compress less."""
_BLOCK = 1 << 12
_SHELL_PIPE = re.compile(r"/dev/(stdin|fd/[0-9]+)|/proc/(self|[0-9]+)/fd/[0-9]+")

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".heic", ".heif", ".hif", ".avif"}
)
VIDEO_SUFFIXES = frozenset({".mp4", ".m4v", ".mkv", ".webm", ".avi", ".mov", ".mpg", ".mpeg"})
"""Suffixes of the files that are taken for images and for videos."""
FEATURE_SUFFIXES = frozenset({".safetensors", ".npy", ".npz", ".pth", ".h5", ".hdf5", ".lmdb", ".tsv"})
"""Files that hold features, which no image file does."""


@contextmanager
def atomic_write(path: str | Path, *, sync: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the same folder; rename it to `path` on a clean exit, else remove it.

    Where `path` is a symbolic link, what it points to is written, and the link stays.
    sync: write to the disk before the rename, so that a crash of the system leaves the old file or the new one.
    Raise DataError, naming the file, when the system refuses the write (read-only folder, full disk, quota), and where
    it is a device or a pipe, which a file would replace.
    """
    path = follow_links(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path} is no regular file; name a file to write")
    partial = partial_path(path)
    _unfinished.add(partial)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)  # less the umask
        permissions = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.close(descriptor)
        yield partial
        partial.chmod(permissions)  # safetensors writes a file of its own
        if sync:
            _sync(partial)
        partial.replace(path)
        if sync:
            _sync(path.parent)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataError(f"{path} could not be written ({reason}); free some space or name another folder") from error
    finally:
        with suppress(OSError):  # such as a folder that is a file
            partial.unlink(missing_ok=True)
        _unfinished.discard(partial)


@contextmanager
def partial_folder(path: str | Path) -> Iterator[Path]:
    """Yield a new folder beside `path`, to be renamed to it when it is whole; remove it at the end otherwise."""
    folder = partial_path(Path(path))
    _unfinished.add(folder)
    try:
        folder.mkdir(parents=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _unfinished.discard(folder)


_unfinished: set[Path] = set()
"""Files and folders that are being written, which a second signal may leave."""


@atexit.register
def _remove_unfinished() -> None:
    for path in list(_unfinished):
        with suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def partial_path(path: Path) -> Path:
    """Return a new name, in the same folder, for a file or folder that is being written."""
    return path.parent / f".{path.name}.{secrets.token_hex(4)}.partial"


def remove_leftovers(path: Path) -> None:
    """Remove the unfinished files and folders of this name that killed processes have left."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.{'?' * 8}.partial"):  # of `partial_path`
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)


def follow_links(path: str | Path) -> Path:
    """Return the path of the file or folder itself where its last part is a symbolic link, else the path."""
    return Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)


@contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Lock a folder or a file that is written, by .NAME.lock next to it, which the system releases at exit.

    Unfinished files that a killed process has left are removed. Raise DataError where another process holds the lock.
    """
    from filelock import FileLock, Timeout  # late: it imports asyncio, and most commands write no folder

    path = follow_links(path)
    lock = FileLock(path.parent / f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        check_writable(Path(lock.lock_file))  # without which there is a timeout, too
        raise DataError(f"{path} is being written by another process; wait for it, or name another output") from None
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}); name an output in another folder") from error
    try:
        remove_leftovers(path)
        yield
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def check_output(out: Path | None, inputs: Iterable[str | Path]) -> None:
    """Raise DataError where the file to write is one of those that are read."""
    if out is not None and out.exists():
        output = out.stat()
        for path in map(Path, inputs):
            if path.exists() and os.path.samestat(path.stat(), output):
                raise DataError(f"{out} is one of the files that are read; name another file to write")


def check_writable(out: Path, *, as_file: bool = False) -> None:
    """Raise DataError for a device or a pipe, and where the system lets nothing be written in the folder of `out`.

    as_file: raise it for an existing folder, too; otherwise that is the folder in which is written.
    """
    check_regular(out)
    if as_file and out.is_dir():
        raise DataError(f"{out} is a folder; name a file to write")
    folder = out.absolute() if out.is_dir() else out.absolute().parent
    try:
        with TemporaryFile(dir=next(path for path in (folder, *folder.parents) if path.exists())):
            pass
    except OSError as error:
        raise DataError(f"{out} cannot be written ({error.strerror}); name an output in another folder") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


__version__ = "1.0.0rc1"
"""The version of Legenda, which the files that it writes name."""
FORMAT_VERSION = 1
"""The version of the formats that this Legenda writes: run folders, exported models and feature stores."""


def check_format(path: Path, version: object, writer: object) -> None:
    """Raise DataError for a file of a format that this Legenda does not read.

    version: the format of the file, None where it names none. writer: the version of Legenda that wrote the file.
    """
    if version is None:
        return
    if type(version) is not int or version < 1:
        raise DataError(f"{path} has the format version {version!r}, which is none; write it again")
    if version == FORMAT_VERSION:
        return
    needed = f"legenda>={writer}" if isinstance(writer, str) else "a later version of Legenda"
    raise DataError(
        f"{path} has format {version}; this is Legenda {__version__}, which reads format {FORMAT_VERSION}; install "
        f"{needed}, or write it again with this version"
    )


def is_file_name(name: str) -> bool:
    """Return whether a file may have the name, which may hold bytes that are not UTF-8 as Python decodes them."""
    try:
        return bool(os.fsencode(name)) and not {"/", "\0"} & {*name}
    except UnicodeEncodeError:
        return False


def write_text(path: str | Path, text: str) -> None:
    """Write `text` in UTF-8, atomically; bytes of file names that are not UTF-8 become escapes, as JSON has them."""
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: str | Path, value: object) -> None:
    """Write `value` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_text(path: str | Path, hint: str = "check the path") -> str:
    """Read a UTF-8 text file, with or without a byte order mark, or one of UTF-16 with it, decompressed if in .gz.

    Raises DataError with the file, the line and the `hint` when that fails.
    """
    content = read_bytes(path, hint)
    try:
        text = content.decode("utf-16" if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")
    except UnicodeDecodeError as error:
        if content.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
            raise DataError(f"{path} is a spreadsheet or an archive; save the table in it as CSV in UTF-8") from None
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{path} is not a UTF-8 text file (line {line}; save it as UTF-8); {hint}") from error
    return StringIO(text, newline=None).read()  # with line feeds alone


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file for reading; raise OSError, and DataError for a device or a pipe, which may never end or answer.

    Only the pipes of a shell, such as /dev/stdin and /dev/fd/63, are opened by their own names.
    """
    at_once = getattr(os, "O_NONBLOCK", 0)  # opening a pipe would wait for a writer
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | at_once))  # noqa: SIM115
    if _SHELL_PIPE.fullmatch(str(path)):
        os.set_blocking(file.fileno(), True)
    elif not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise DataError(f"{path} is no regular file; name a file, or put one in its place")
    return file


def check_regular(*paths: Path) -> None:
    """Raise DataError for a device or a pipe, which a library would open; links are followed."""
    for path in paths:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise DataError(f"{path} is no regular file; name a file, or put one in its place")


def file_digest(path: Path, budget: int) -> bytes:
    """Return a digest of the size and the content of a file; of one beyond a budget, of blocks at equal distances."""
    digest = hashlib.blake2b(digest_size=8)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(str(size).encode())
        distance = _BLOCK if size <= budget else -(-size // max(budget // _BLOCK, 1))
        for start in range(0, size, distance):
            file.seek(start)
            digest.update(file.read(_BLOCK))
    return digest.digest()


def read_bytes(path: str | Path, hint: str = "check the path") -> bytes:
    """Read a file, decompressed if its name ends in .gz; raise DataError with the file and the `hint` otherwise."""
    path = Path(path)
    try:
        with open_regular(path) as file:
            content = file.read()
    except (OSError, ValueError) as error:  # ValueError for a zero byte in the path
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read ({reason}); {hint}") from error
    return verified(lambda: _decompress(content), path, hint) if path.suffix == ".gz" else content


def _decompress(content: bytes) -> bytes:
    limit = max(_MAX_BYTES, _MAX_RATIO * len(content))
    with gzip.open(BytesIO(content)) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(
            f"uncompressed it has over {limit / 2**20:,.0f} MiB, which is over {_MAX_RATIO} times its size"
        )
    return data


@contextmanager
def without_gc() -> Iterator[None]:
    """Disable garbage collection, which takes a third of the time among millions of new objects and frees none."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def read_json(path: str | Path, hint: str = "check the path") -> Any:
    """Read a JSON file, decompressed if its name ends in .gz.

    Raises DataError with the file, the line and the `hint` when that fails.
    """
    return parse_json(read_text(path, hint), path, hint)


def parse_json(text: str, path: str | Path, hint: str) -> Any:
    """Parse JSON; `path` names its source in errors.

    Raise DataError for text that is no JSON, and for what other readers take differently: a key that an object has
    twice, and numbers that are not finite.
    """

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        content = dict(pairs)
        if len(content) < len(pairs):
            seen = set[str]()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise DataError(f"{path} cannot be read ({twice} occurs twice); {hint}")
        return content

    try:
        return json.loads(
            text, parse_constant=_refuse, parse_int=_parse_int, parse_float=_parse_float, object_pairs_hook=unique
        )
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not valid JSON (line {error.lineno}: {error.msg}); {hint}") from error
    except RecursionError as error:
        raise DataError(f"{path} holds JSON that is nested too deep; {hint}") from error
    except ValueError as error:
        raise DataError(f"{path} holds a number that is NaN, infinite or of too many digits; {hint}") from error


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _parse_int(digits: str) -> int:
    if len(digits) > 300:  # a float, with which it may be compared, has no place for more
        raise ValueError(digits)
    return int(digits)


def _parse_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):  # 1e999
        raise ValueError(digits)
    return value


class _PlainUnpickler(pickle.Unpickler):
    """Unpickle containers, numbers and text; `allowed` replaces globals by name, and every other one is refused."""

    def __init__(self, file: BinaryIO, allowed: Mapping[str, object]) -> None:
        super().__init__(file, encoding="latin-1")  # as Python 2 wrote bytes
        self._allowed = allowed

    def find_class(self, module: str, name: str) -> object:
        path = f"{ {'__builtin__': 'builtins', 'copy_reg': 'copyreg'}.get(module, module) }.{name}"
        if path not in self._allowed:
            raise DataError(f"it holds {path}, which is not plain data and is not imported")
        return self._allowed[path]


def read_pickle(path: Path, hint: str, allowed: Mapping[str, object] | None = None) -> object:
    """Return the content of a pickle of plain data: numbers, text, containers, and what `allowed` replaces.

    allowed: stand-ins by the full name of a class or function. Nothing of the file is executed or imported.
    Raise DataError, naming the file, for anything else.
    """

    def read() -> object:
        with path.open("rb") as file:
            return _PlainUnpickler(file, allowed or {}).load()

    return verified(read, path, hint)


def verified(read: Callable[[], T], path: str | Path, hint: str) -> T:
    """Return `read()`, where `read` is a library's reader of `path`; raise DataError with the `hint` when it fails."""
    try:
        return read()
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; {hint}") from error
    except PermissionError as error:
        raise DataError(f"{path} cannot be read (no permission); change its mode, or {hint}") from error
    except Exception as error:  # readers of damaged files raise exceptions of any type
        raise DataError(f"{path} cannot be read ({first_line(error)}); {hint}") from error


COCO_NAME = re.compile(r"(?:COCO_(?P<part>[a-z]+[0-9]{4})_)?(?P<id>[0-9]{1,18})")
"""COCO's names of images: COCO_train2014_000000000009, 000000000009 since 2017, and ids as text."""


def coco_id(name: str) -> int | None:
    """Return the id of a COCO image, given its id or file name without suffix as text; None for other names."""
    match = COCO_NAME.fullmatch(name)
    return None if match is None else int(match["id"])


def coco_number(name: str) -> str | None:
    """Return the id in COCO's name of an image, with its 12 digits, as text without zeros in front; else None."""
    match = COCO_NAME.fullmatch(name)
    return None if match is None or len(match["id"]) != 12 else str(int(match["id"]))


def load_arrays(path: Path, hint: str) -> dict[str, np.ndarray]:
    """Return the tensors of a safetensors file by name, matrices of int8 with a scale of each row as float32.

    For what runs without PyTorch; see `legenda.models.checkpoint.load_tensors`.
    Raise CheckpointError with the hint where the file cannot be read, or its values are not those of its checksum.
    """
    try:
        return verified(lambda: _read_arrays(path), path, hint)
    except DataError as error:
        raise CheckpointError(str(error)) from error


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    import numpy as np  # late: the commands that list or explain need no arrays

    with safe_open(path, framework="np") as file:
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
