"""What is measured during training: metrics.jsonl, a line for each record, and metrics.csv, a line for each number."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from legenda.errors import UserError
from legenda.io import read_text, write_text

HISTORY, TABLE = "metrics.jsonl", "metrics.csv"

_HEADER = "step,epoch,name,value\n"


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The records of a run, oldest first; a last line that was cut off by a kill is left out."""
    path = folder / HISTORY
    records = []
    lines = read_text(path, "a run folder holds it; train the run again").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            records.append({**record, "step": int(record["step"])})
        except (ValueError, TypeError, KeyError) as error:
            if number < len(lines):
                raise UserError(f"{path} is damaged in line {number}; train the run again") from error
    return records


def begin_history(folder: Path, last_step: int) -> None:
    """Keeps the records up to a step and drops what a killed run wrote after its last saved state."""
    kept = [r for r in read_history(folder) if r["step"] <= last_step] if (folder / HISTORY).exists() else []
    write_text(folder / HISTORY, "".join(json.dumps(record) + "\n" for record in kept))
    write_text(folder / TABLE, _HEADER + "".join(map(_rows, kept)))


def add_record(folder: Path, record: dict[str, Any]) -> None:
    """Appends one record to both files."""
    for path, text in ((folder / HISTORY, json.dumps(record) + "\n"), (folder / TABLE, _rows(record))):
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise UserError(f"{path} could not be written ({error.strerror}); free some space") from error


def numbers(record: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    """The numbers of a record by name, those of a validation as "validation/CIDEr-D"."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}/{inner}", number) for inner, number in numbers(value))
        elif isinstance(value, int | float) and name not in ("step", "epoch"):
            yield name, value


def _rows(record: Mapping[str, Any]) -> str:
    return "".join(f"{record['step']},{record.get('epoch', '')},{name},{value!r}\n" for name, value in numbers(record))
