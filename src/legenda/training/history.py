"""metrics.jsonl: one line for each thing measured during training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from legenda.errors import UserError
from legenda.files import read_text, write_text

HISTORY = "metrics.jsonl"


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


def add_record(folder: Path, record: dict[str, Any]) -> None:
    """Appends one record."""
    try:
        with (folder / HISTORY).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    except OSError as error:
        raise UserError(f"{folder / HISTORY} could not be written ({error.strerror}); free some space") from error
