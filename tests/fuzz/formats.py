"""Damage to a file of any format; that within PNG keeps its checksums."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

from mutations import NUMBERS, VALUES, mutate_bytes, mutate_gzip, mutate_json, mutate_lines, mutate_safetensors


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


def mutate_jpeg(data: bytes, random: Random) -> tuple[bytes, str]:
    """Repeat a scan of a JPEG, or another of its segments, or change the size of the image."""
    starts = [at for at in range(len(data) - 1) if data[at] == 0xFF and 0xC0 <= data[at + 1] != 0xFF]
    starts = [at for at in starts if not 0xD0 <= data[at + 1] <= 0xD8]
    if random.random() < 0.2:
        at = next(at for at in starts if data[at + 1] in (0xC0, 0xC2)) + 5
        size = struct.pack(">HH", *(random.choice((0, 1, 64, 8000, 65535)) for _ in range(2)))
        return data[:at] + size + data[at + 4 :], f"size {size.hex()}"
    kind = 0xDA if random.random() < 0.7 else data[random.choice(starts) + 1]
    index = random.choice([n for n, at in enumerate(starts[:-1]) if data[at + 1] == kind] or [0])
    start, end, count = starts[index], starts[index + 1], random.choice((1, 10, 60, 500, 3000))
    return data[:end] + data[start:end] * count + data[end:], f"segment {data[start + 1]:x} repeated {count} times"


def mutate_toml(data: bytes, random: Random) -> tuple[bytes, str]:
    """Replace the value of a line of TOML."""
    lines = data.split(b"\n")
    at = random.choice([n for n, line in enumerate(lines) if b" = " in line])
    value = random.choice(VALUES)
    lines[at] = lines[at].split(b" = ")[0] + b" = " + json.dumps(value).encode()
    return b"\n".join(lines), f"{lines[at][:60]!r}"


_STRUCTURED: dict[str, Callable[[bytes, Random], tuple[bytes, str]]] = {
    ".png": mutate_png,
    ".jpg": mutate_jpeg,
    ".toml": mutate_toml,
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
