"""A reader of LMDB data bases in Python: liblmdb maps the file, and damaged pages end the process.

Source: mdb.c of liblmdb 0.9, whose files 64-bit little-endian machines write. A file is a sequence of pages: the first
two hold the newest and the second newest root; inner pages, leaves and runs of overflow pages follow.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

_META = struct.Struct("<16xII16xI44x40xQQQ")
"""Magic number, version, page size, root of the main data base, last page, transaction."""
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_NODE = struct.Struct("<HHHH")
_BRANCH, _LEAF, _OVERFLOW_NODE = 1, 2, 1
_HEADER = 16
_NO_ROOT = 2**64 - 1


class LmdbFile:
    """The entries of one data base without duplicate keys; keys are sorted, and nothing is mapped.

    Raise ValueError or OSError for a damaged file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._size = os.fstat(self._file.fileno()).st_size
        metas = [self._meta(0)]
        self._page_size = metas[0][2]
        if not 512 <= self._page_size <= 65536:
            raise ValueError(f"its pages have {self._page_size} bytes")
        metas.append(self._meta(self._page_size))
        root = max(metas, key=lambda meta: meta[-1])[3]
        self._entries: dict[bytes, tuple[int, int]] = {}
        if root != _NO_ROOT:
            self._walk(root)

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Return all keys."""
        return tuple(self._entries)

    def get(self, key: bytes) -> bytes:
        """Return the value of a key."""
        return self._read(*self._entries[key])

    def _meta(self, offset: int) -> tuple[int, ...]:
        meta = _META.unpack(self._read(offset, _META.size))
        if meta[:2] != (_MAGIC, _VERSION):
            raise ValueError("it is no LMDB data base of a 64-bit little-endian machine")
        return meta

    def _walk(self, root: int) -> None:
        """Find the values below a page."""
        pages, found = [root], {root}
        while pages:
            start = pages.pop() * self._page_size
            page = self._read(start, self._page_size)
            kind, lower = struct.unpack_from("<HH", page, 10)
            if kind & 0xF not in (_BRANCH, _LEAF) or not _HEADER <= lower <= len(page):
                raise ValueError("it has a damaged page")
            nodes = struct.unpack_from(f"<{(lower - _HEADER) // 2}H", page, _HEADER)
            if kind & _BRANCH:
                children = [_child(page, node) for node in reversed(nodes)]
                if not found.isdisjoint(children) or len(set(children)) < len(children):
                    raise ValueError("its pages form a circle")
                found.update(children)
                pages += children
            else:
                for node in nodes:
                    self._add(page, start, node)

    def _add(self, page: bytes, start: int, node: int) -> None:
        low, high, flags, key_size = _NODE.unpack_from(page, node)
        value = node + _NODE.size + key_size
        size = low | high << 16
        offset = start + value
        if flags & ~_OVERFLOW_NODE:
            raise ValueError("it has data bases within, or several values of a key")
        if flags & _OVERFLOW_NODE:
            offset = struct.unpack_from("<Q", page, value)[0] * self._page_size + _HEADER
        elif value + size > len(page):
            raise ValueError("it has a damaged page")
        if offset + size > self._size:
            raise ValueError("it is truncated")
        self._entries[page[node + _NODE.size : value]] = offset, size

    def _read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file, which may have been cut since it was opened."""
        content = os.pread(self._file.fileno(), size, offset) if offset + size <= self._size else b""
        if len(content) < size:
            raise ValueError("it is truncated")
        return content


def _child(page: bytes, node: int) -> int:
    """Return the page to which a node of an inner page points."""
    low, middle, high, _ = _NODE.unpack_from(page, node)
    return low | middle << 16 | high << 32
