"""Damage to a file of any format; that within HDF5 files, LMDB data bases and PNG keeps their checksums and indices."""

from __future__ import annotations

import io
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
from mutations import (
    NUMBERS,
    mutate_bytes,
    mutate_gzip,
    mutate_json,
    mutate_lines,
    mutate_npy,
    mutate_pickle,
    mutate_safetensors,
    mutate_zip,
)

_TYPES = ("f2", "f8", "c8", "i8", "u1", "S5", "?", ">f4")
_SHAPES = ((), (0,), (0, 4), (1,), (3,), (49, 2), (2, 2, 2), (1, 1, 1, 1))
_FILLED = (np.nan, np.inf, -np.inf, 1e30, -1.0, 2.0, 0.0)


def mutate_hdf5(data: bytes, random: Random) -> tuple[bytes, str]:
    """Replace, remove, rename or add an object of an HDF5 file, or its attributes."""
    import h5py

    buffer = io.BytesIO(data)
    with h5py.File(buffer, "r+") as file:
        name = random.choice(list(file))
        content, action = file[name][()], random.randrange(8)
        del file[name]
        match action:
            case 0:
                dtype = random.choice(_TYPES)
                file[name] = np.zeros(content.shape, dtype)
                what = f"has the type {dtype}"
            case 1:
                shape = random.choice(_SHAPES)
                file[name] = np.zeros(shape, np.float32)
                what = f"has the shape {shape}"
            case 2:
                file[name] = np.full_like(content, random.choice(_FILLED))
                what = "has one value everywhere"
            case 3:
                kind = random.choice((h5py.SoftLink("/x"), h5py.ExternalLink("/etc/passwd", "/x")))
                file[name] = kind
                what = f"is a {type(kind).__name__}"
            case 4:
                file.create_group(name)
                what = "is a group"
            case 5:
                file.create_dataset(name, (2 ** random.choice((20, 33, 45)), 4), "f4", chunks=(1, 4))
                what = "is huge without values"
            case 6:
                file[name] = content
                other = random.choice(("", "x\x1b[31m", 5, [1, 2], np.nan, "a" * 10_000, h5py.Empty("f")))
                file.attrs["extractor"] = other
                what = "stays, with another extractor"
            case _:
                other = random.choice(("_features", "x_features", "/a/b_features", name + "\x1b[31m", "é_boxes"))
                file[other] = content
                what = f"is now {other!r}"
    return buffer.getvalue(), f"{name} {what}"


def mutate_lmdb(data: bytes, random: Random) -> tuple[bytes, str]:
    """Change a value, which holds an .npz, or a key of an LMDB data base."""
    import lmdb

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.mdb")
        path.write_bytes(data)
        with lmdb.open(folder, map_size=1 << 22, lock=False) as base, base.begin(write=True) as transaction:
            keys = list(transaction.cursor().iternext(values=False))
            key = random.choice(keys)
            value = transaction.get(key)
            match random.randrange(6):
                case 0:
                    transaction.delete(key)
                    what = "removed"
                case 1:
                    other = random.choice((b"\xff", b"\x1b[31m", key + b".npy", key + b".npz", b"/x", b"x" * 500))
                    transaction.put(other, value)
                    what = f"also under {other[:20]!r}"
                case 2:
                    value, what = mutate_bytes(value, random)
                    transaction.put(key, value)
                case _:
                    value, what = mutate_zip(value, random)
                    transaction.put(key, value)
        return path.read_bytes(), f"{key!r}: {what}"


def mutate_png(data: bytes, random: Random) -> tuple[bytes, str]:
    """Change a chunk of a PNG, with a right checksum; sizes are often those of enormous images."""
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    index = random.randrange(len(chunks))
    kind, content = chunks[index]
    if random.random() < 0.4:
        index, kind = 0, b"IHDR"
        width, height = (random.choice((0, 1, 320, *NUMBERS)) & (2**32 - 1) for _ in range(2))
        content = struct.pack(">II", width, height) + bytes(
            random.choice(((8, 2, 0, 0, 0), (16, 0, 0, 0, 0), (1, 3, 0, 0, 1), (8, 6, 0, 0, 1), (255,) * 5))
        )
        what = f"{width} x {height} pixels"
    elif random.random() < 0.3:
        what = f"{kind!r} removed" if random.random() < 0.5 else f"{kind!r} repeated"
        chunks[index : index + 1] = [] if "removed" in what else [(kind, content)] * 300
        return data[:8] + b"".join(_chunk(*chunk) for chunk in chunks), what
    else:
        content, what = mutate_bytes(content, random)
        kind = random.choice((kind, kind, b"tEXt", b"zTXt", b"eXIf", b"tRNS", b"PLTE", b"acTL"))
    chunks[index] = (kind, content)
    return data[:8] + b"".join(_chunk(*chunk) for chunk in chunks), f"{kind!r}: {what}"


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


_STRUCTURED: dict[str, Callable[[bytes, Random], tuple[bytes, str]]] = {
    ".hdf5": mutate_hdf5,
    "data.mdb": mutate_lmdb,
    ".png": mutate_png,
    ".json": mutate_json,
    ".gz": mutate_gzip,
    ".npz": mutate_zip,
    ".pth": mutate_zip,
    ".npy": mutate_npy,
    ".safetensors": mutate_safetensors,
    **dict.fromkeys((".p", ".pkl"), mutate_pickle),
    **dict.fromkeys((".csv", ".tsv", ".txt", ".jsonl", ".en", ".de"), mutate_lines),
}


def mutate(path: Path, random: Random) -> str:
    """Damage one file, and describe how."""
    data = path.read_bytes()
    structured = _STRUCTURED.get(_kind(path))
    if structured is not None and random.random() < 0.6:
        try:
            changed, what = structured(data, random)
        except (ValueError, KeyError, IndexError, RecursionError, OverflowError):
            changed, what = mutate_bytes(data, random)
    else:
        changed, what = mutate_bytes(data, random)
    path.write_bytes(changed)
    return f"{path.name}: {what}"


def _kind(path: Path) -> str:
    return "data.mdb" if path.name == "data.mdb" else path.suffix.lower()
