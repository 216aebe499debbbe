"""The training history: metrics.jsonl with one record per line, metrics.csv with one number per line, and loggers."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from legenda.errors import CheckpointError, DataError
from legenda.io import parse_integer, read_text, write_text
from legenda.run_folder import HISTORY, HISTORY_TABLE

_HEADER = "step,epoch,name,value\n"


def read_history(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a run, oldest first; a last line truncated by a kill is skipped.

    Raise CheckpointError for a damaged file.
    """
    path = folder / HISTORY
    records = []
    lines = read_text(path, "a run folder holds it; train the run again").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            records.append(_parse_record(line))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            if number < len(lines):
                raise CheckpointError(f"{path} is damaged in line {number}; train the run again") from error
    return records


def _parse_record(line: str) -> dict[str, Any]:
    """Return a record with whole numbers as step and epoch and numbers as scores of a validation; else raise."""
    record = json.loads(line, parse_int=parse_integer)
    if not all(isinstance(score, int | float | None) for score in record.get("validation", {}).values()):
        raise TypeError
    return record | {name: int(record[name]) for name in {"step", *record} & {"step", "epoch"}}


def open_history(folder: Path, last_step: int) -> None:
    """Create the files, or drop the records that a killed run wrote after its last checkpoint at `last_step`."""
    records = [r for r in read_history(folder) if r["step"] <= last_step] if (folder / HISTORY).exists() else []
    write_text(folder / HISTORY, "".join(json.dumps(record) + "\n" for record in records))
    write_text(folder / HISTORY_TABLE, _HEADER + "".join(map(_csv_lines, records)))


def add_record(folder: Path, record: dict[str, Any]) -> None:
    """Append a record to both files."""
    for path, text in ((folder / HISTORY, json.dumps(record) + "\n"), (folder / HISTORY_TABLE, _csv_lines(record))):
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise DataError(f"{path} could not be written ({error.strerror}); free some space") from error


def flatten_record(record: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    """Yield the numbers of a record by name, those of a validation as "validation/CIDEr-D"."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}/{inner}", number) for inner, number in flatten_record(value))
        elif isinstance(value, int | float) and name not in ("step", "epoch"):
            yield name, value


def _csv_lines(record: Mapping[str, Any]) -> str:
    step, epoch = record["step"], record.get("epoch", "")
    return "".join(f"{step},{epoch},{name},{value!r}\n" for name, value in flatten_record(record))


Logger = Callable[[Mapping[str, Any]], None]
"""Called with every record of the history."""

TENSORBOARD_FOLDER = "tensorboard"


def open_loggers(folder: Path, last_step: int) -> list[Logger]:
    """Return a TensorBoard logger where tensorboard is installed, and a W&B logger where wandb is and the environment
    variable WANDB_PROJECT names a project.

    last_step: what was logged of later steps, before a kill, is discarded.
    """
    return [logger for logger in (_tensorboard(folder, last_step), _wandb(folder)) if logger is not None]


def _tensorboard(folder: Path, last_step: int) -> Logger | None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    writer = SummaryWriter(str(folder / TENSORBOARD_FOLDER), purge_step=last_step + 1)

    def log(record: Mapping[str, Any]) -> None:
        for name, value in flatten_record(record):
            writer.add_scalar(name, value, record["step"])
        writer.flush()

    return log


def _wandb(folder: Path) -> Logger | None:
    project = os.environ.get("WANDB_PROJECT")
    if not project:
        return None
    try:
        import wandb  # pyrefly: ignore
    except ImportError:
        return None
    run_id = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    run = wandb.init(project=project, id=run_id, name=folder.name, dir=str(folder), resume="allow")
    return lambda record: run.log(dict(flatten_record(record)), step=record["step"])
