"""What commands have written, without times, to compare it bit for bit."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

_TIMES = ("seconds", "environment", "folder")


def contents(folder: Path) -> dict[str, Any]:
    """Return the files of outputs by name: their bytes, but without times where they hold any."""
    import safetensors.numpy

    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.parent.name != "tensorboard"):
        name, data = str(path.relative_to(folder)), path.read_bytes()
        if path.name == "training_state.safetensors":
            length = int.from_bytes(data[:8], "little")
            progress = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["progress"])
            arrays = safetensors.numpy.load(data)
            found[name] = _timeless(progress), {key: digest(array.tobytes()) for key, array in arrays.items()}
        elif path.suffix == ".jsonl":
            found[name] = [_timeless(json.loads(line)) for line in data.splitlines()]
        elif path.suffix == ".json":
            found[name] = _timeless(json.loads(data))
        elif path.suffix == ".csv":
            found[name] = _timeless(list(csv.DictReader(data.decode().splitlines())))
        else:
            found[name] = digest(data)
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(part) for key, part in value.items() if not any(word in key for word in _TIMES)}
    return [_timeless(part) for part in value] if isinstance(value, list) else value


def digest(data: bytes) -> str:
    """Return a checksum."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def differences(expected: dict[str, Any], found: dict[str, Any]) -> str:
    """Return the names of the files that differ."""
    return ", ".join(name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name))
