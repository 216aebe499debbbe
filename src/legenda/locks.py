"""Locks of run folders and outputs: one process at a time writes them."""

from __future__ import annotations

import fcntl
import glob
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree

from legenda.errors import DataError
from legenda.io import follow_links


@contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Hold the lock of a folder or a file that is written; the lock file PATH.lock holds the owner.

    The system releases the lock when its process ends, so a lock file that a killed process has left does not count,
    and the unfinished files that it has left are removed.
    Raise DataError, naming the owner's process and host, where another process holds it.
    """
    path = follow_links(path)
    lock = path.parent / f".{path.name}.lock"
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = _acquire(lock, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}); name an output in another folder") from error
    try:
        for leftover in lock.parent.glob(f".{glob.escape(path.name)}.{'?' * 8}.partial"):  # of tempfile
            rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(file)


def _acquire(lock: Path, path: Path) -> int:
    while True:
        file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(file)
            os.close(file)
            raise DataError(f"{path} is being written by {owner}; wait for it, or name another output") from None
        if lock.exists() and os.path.samestat(os.fstat(file), lock.stat()):
            break
        os.close(file)  # the last owner removed it between opening and locking
    with suppress(OSError):  # on a full disk the owner is unknown to others
        os.ftruncate(file, 0)
        os.write(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
    return file


def _owner(file: int) -> str:
    try:
        owner = json.loads(os.pread(file, 4096, 0))
        return f"process {int(owner['pid'])} on {owner['host']!s:.64}"
    except (ValueError, KeyError, TypeError):
        return "another process"
