"""Damage to a file of any format; that within PNG keeps its checksums."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

from mutations import (
    NUMBERS,
    mutate_bytes,
    mutate_gzip,
    mutate_json,
    mutate_lines,
    mutate_safetensors,
)


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
    ".png": mutate_png,
    ".json": mutate_json,
    ".gz": mutate_gzip,
    ".safetensors": mutate_safetensors,
    **dict.fromkeys((".csv", ".tsv", ".txt", ".jsonl", ".en", ".de"), mutate_lines),
}


def mutate(path: Path, random: Random) -> str:
    """Damage one file, and describe how."""
    data = path.read_bytes()
    structured = _STRUCTURED.get(path.suffix.lower())
    if structured is not None and random.random() < 0.6:
        try:
            changed, what = structured(data, random)
        except (ValueError, KeyError, IndexError, RecursionError, OverflowError):
            changed, what = mutate_bytes(data, random)
    else:
        changed, what = mutate_bytes(data, random)
    path.write_bytes(changed)
    return f"{path.name}: {what}"
