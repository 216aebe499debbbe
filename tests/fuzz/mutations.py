"""Seeded damage to files: of their bytes, and of their structure.

Each function returns the damaged bytes and what it did, in words. Most keep the format valid (JSON stays JSON), so that
damage reaches the code behind a format's own checks.
"""

from __future__ import annotations

import gzip
import json
import re
from random import Random
from typing import Any

LONG = 100_000
NUMBERS = (0, 1, -1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**64 - 1)
VALUES: tuple[Any, ...] = (
    None, True, False, "", "x", "\x00", "\x1b[31mred\x07", "\ud800", "é" * 300, "a&" * (LONG // 2), "../../etc/passwd",
    [], {}, [[]], {"": None}, [None], [1, "a"], {"a": [1]}, *NUMBERS, 0.5, -1e300, 1e-320, 10**30, 10**400,
    float("nan"), float("inf"),
)  # fmt: skip
"""What replaces a value of JSON or of a recipe."""
RAW = (b"[" * 200_000, b'{"a":' * 100_000, b"9" * 5_000, b"1e999", b"NaN", b"\xff\xfe", b"", b"null", b"\xef\xbb\xbf")
"""What replaces a piece of the text of JSON."""


def mutate_bytes(data: bytes, random: Random) -> tuple[bytes, str]:
    """Damage the bytes of any file: flipped, overwritten, cut, moved, repeated or added."""
    size = len(data)
    start = random.randrange(size + 1) if random.random() < 0.5 else min(size, random.randrange(200))
    length = min(size - start, random.choice((1, 1, 2, 4, 8, 16, 100, 1000)))
    end = start + length
    match random.randrange(9):
        case 0 if size:
            changed = bytearray(data)
            for _ in range(random.randint(1, 8)):
                changed[random.randrange(size)] ^= 1 << random.randrange(8)
            return bytes(changed), "bits flipped"
        case 1:
            return data[:start], f"cut at {start}"
        case 2:
            return data[:start] + data[end:], f"{length} bytes at {start} removed"
        case 3:
            return data[:end] + data[start:end] + data[end:], f"{length} bytes at {start} repeated"
        case 4:
            return data[:start] + bytes(length) + data[end:], f"{length} bytes at {start} zeroed"
        case 5:
            return data[:start] + random.randbytes(length) + data[end:], f"{length} bytes at {start} random"
        case 6:
            width = random.choice((1, 2, 4, 8))
            number = random.choice(NUMBERS) & (256**width - 1)
            order = random.choice(("little", "big"))
            return data[:start] + number.to_bytes(width, order) + data[start + width :], f"{number} at {start}"
        case 7:
            other = random.randrange(size + 1)
            return data[:start] + data[other : other + length] + data[end:], f"{length} bytes of {other} at {start}"
        case _:
            extra = random.choice((b"\0", b"\n", random.randbytes(20), data[:100], b"\0" * LONG))
            return data + extra, f"{len(extra)} bytes added"


def mutate_value(value: Any, random: Random) -> tuple[Any, str]:
    """Return a tree of lists, tuples and dicts with one part changed."""
    if not isinstance(value, list | tuple | dict) or not value or random.random() < 0.1:
        new = random.choice(VALUES)
        return new, f"{_short(value)} became {_short(new)}"
    if isinstance(value, dict):
        key = random.choice(list(value))
        if random.random() < 0.75:
            inner, what = mutate_value(value[key], random)
            return {**value, key: inner}, f"{_short(key)}: {what}"
        rest = {name: part for name, part in value.items() if name != key}
        if random.random() < 0.5:
            return rest, f"{_short(key)} removed"
        return {**rest, random.choice(("", "x", "\x1b[2J", key * 2 if isinstance(key, str) else key)): value[key]}, (
            f"{_short(key)} renamed"
        )
    kind, items, at = type(value), list(value), random.randrange(len(value))
    action = random.random()
    if action < 0.75:
        items[at], what = mutate_value(items[at], random)
        return kind(items), f"[{at}]: {what}"
    if action < 0.85:
        return kind([*items[:at], *items[at + 1 :]]), f"[{at}] removed"
    if action < 0.95:
        return kind([*items[: at + 1], *items[at:]]), f"[{at}] repeated"
    return kind(items * 50), "repeated 50 times"


def _short(value: Any) -> str:
    return repr(value)[:40]


def mutate_json(data: bytes, random: Random) -> tuple[bytes, str]:
    """Change a part of JSON, or a piece of its text."""
    if random.random() < 0.2:
        tokens = list(re.finditer(rb'"[^"]*"|[\d.e+-]+|[\[\]{},:]|true|false|null', data))
        token, new = random.choice(tokens), random.choice(RAW)
        return data[: token.start()] + new + data[token.end() :], f"{token[0][:30]!r} became {new[:30]!r}"
    value, what = mutate_value(json.loads(data), random)
    return json.dumps(value).encode(), what


def mutate_lines(data: bytes, random: Random) -> tuple[bytes, str]:
    """Change a line of text: removed, repeated, emptied, without separators, with other characters or far longer."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    line = lines[at]
    if line.startswith(b"{") and random.random() < 0.5:
        changed, what = mutate_json(line, random)
        return b"\n".join([*lines[:at], changed, *lines[at + 1 :]]), f"line {at}: {what}"
    if random.random() < 0.3:
        words = re.split(rb"([\t,; |]+)", line)
        place = random.randrange(len(words))
        words[place] = random.choice((b"", b"nan", b"inf", b"-1", b"1e400", b"9" * 5000, b"0", b"x", b"\x1b[31m", b'"'))
        return b"\n".join([*lines[:at], b"".join(words), *lines[at + 1 :]]), f"line {at}: word {place} changed"
    new = random.choice(
        (
            [], [line, line], [b""], [line + b"\r"], [b"\xef\xbb\xbf" + line], [line.replace(b"\t", b" ")],
            [line.replace(b",", b"")], [b'"' + line], [line + b"\0"], [b"\xff\xfe" + line], [line + b"\x1b[31m\x07"],
            [line + "\u2028\u0085\u202e".encode()], [line + b"a&" * (LONG // 2)], [line + b"\t" * 1000], [line * 1000],
            [line + b" x"], [b" "], [b"#version: 0.2"], lines[: at + 1] * 50, [line.swapcase()],
        )
    )  # fmt: skip
    return b"\n".join([*lines[:at], *new, *lines[at + 1 :]]), f"line {at} became {_short(b'|'.join(new[:2]))}"


def mutate_safetensors(data: bytes, random: Random) -> tuple[bytes, str]:
    """Change the header of a safetensors file, and its length with it, or values behind it."""
    start = 8 + int.from_bytes(data[:8], "little")
    if random.random() < 0.3:
        values, what = mutate_bytes(data[start:], random)
        return data[:start] + values, f"values: {what}"
    header = json.loads(data[8:start])
    if random.random() < 0.3 and "__metadata__" in header:
        name = random.choice(list(header["__metadata__"]))
        text, what = header["__metadata__"][name], "changed"
        try:
            text = mutate_json(text.encode(), random)[0].decode()
        except ValueError:
            text = str(random.choice(VALUES[:-2]))  # nan and inf would be names, but look like numbers in an output
        changed: Any = {**header, "__metadata__": {**header["__metadata__"], name: text}}
        what = f"metadata {name} changed"
    else:
        changed, what = mutate_value(header, random)
    encoded = json.dumps(changed).encode()
    return len(encoded).to_bytes(8, "little") + encoded + data[start:], f"header: {what}"


def mutate_gzip(data: bytes, random: Random) -> tuple[bytes, str]:
    """Change what a gzipped file of JSON or text holds."""
    inner = gzip.decompress(data)
    changed, what = (mutate_json if inner[:1] in b"[{" else mutate_lines)(inner, random)
    return gzip.compress(changed, 1, mtime=0), what
