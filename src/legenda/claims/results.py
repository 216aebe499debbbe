"""The numbers of a claim's finished runs, as its JSON file holds them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from legenda.claims.claim import Claim, Measure
from legenda.claims.probes import PROBES
from legenda.claims.runs import BEAM_SIZE, ClaimRun
from legenda.io import get_field, read_json, write_json
from legenda.machine import describe_machine
from legenda.models.checkpoint import load_any
from legenda.training.history import read_history

HINT = "run legenda claim NAME to write it again"


def collect(claim: Claim, runs: Iterable[ClaimRun], core_hours: float, steps: int | None = None) -> dict[str, Any]:
    """Return the numbers of the runs that are finished and evaluated.

    arms: by key, with the number of parameters, the steps of the training, and the measures of each seed; null where a
    score was not reached, or has no value. core_hours: those that training and evaluation took. steps: those of each
    run where they are not those of the claim.
    """
    arms: dict[str, Any] = {}
    for run in runs:
        if (scores := run.run.scores()) is not None:
            arm = arms.setdefault(run.arm.key, {"steps": run.steps, "parameters": _parameters(run), "seeds": {}})
            values = {key: _value(measure, run, scores) for key, measure in claim.measures.items()}
            arm["seeds"][str(run.seed)] = values
    return {
        "claim": claim.name,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "beam_size": BEAM_SIZE,
        "core_hours": round(core_hours, 3),
        "steps": steps,
        "arms": arms,
    }


def read_results(path: Path) -> dict[str, Any]:
    """Return the numbers of a JSON file; raise DataError for another file."""
    content = read_json(path, HINT)
    for name, kind in (("claim", str), ("arms", dict), ("core_hours", int | float), ("machine", str), ("date", str)):
        get_field(content, name, kind, str(path), HINT)
    for key, arm in content["arms"].items():
        where = f"the model {key} of {path}"
        get_field(arm, "parameters", int, where, HINT)
        get_field(arm, "steps", int, where, HINT)
        for seed in (seeds := get_field(arm, "seeds", dict, where, HINT)):
            for measure in get_field(seeds, seed, dict, where, HINT):
                get_field(seeds[seed], measure, int | float | None, f"seed {seed} of {where}", HINT)
    return content


class CoreHours:
    """The core-hours of a claim, those of earlier calls included, in a file of the folder of its runs.

    The file also holds those of the folder's other claims. Raise DataError for a damaged file.
    """

    def __init__(self, folder: Path, claim: str) -> None:
        self._path, self._claim, self._seconds = folder / "core_hours.json", claim, _seconds_of_processes()
        self._read()

    def count(self) -> float:
        """Add the time of the processes that have ended since the last call; return the sum."""
        known, seconds = self._read(), _seconds_of_processes()
        known[self._claim] += (seconds - self._seconds) / 3600
        write_json(self._path, known)
        self._seconds = seconds
        return known[self._claim]

    def _read(self) -> dict[str, float]:
        hint = "delete it to count from 0"
        known = read_json(self._path, hint) if self._path.exists() else {}
        new = isinstance(known, dict) and self._claim not in known
        before = 0.0 if new else get_field(known, self._claim, int | float, str(self._path), hint)
        return {**known, self._claim: before}


def _seconds_of_processes() -> float:
    """Return the processor time, in seconds, of all processes that this one started and that ended."""
    return sum(os.times()[2:4])


def _parameters(run: ClaimRun) -> int:
    return load_any(run.folder).parameter_count


def _value(measure: Measure, run: ClaimRun, scores: Mapping[str, float | None]) -> float | None:
    if measure.probe is not None:
        value = PROBES[measure.probe](run)
    elif measure.reaches is not None:
        value = steps_to_reach(read_history(run.folder), measure.name, measure.reaches)
    else:
        where = f"the test scores in {run.folder}"
        value = get_field(scores, measure.name, int | float | None, where, "delete the folder to train it again")
    return None if value is None or not math.isfinite(value) else round(value, 5)


def steps_to_reach(history: Iterable[Mapping[str, Any]], score: str, threshold: float) -> int | None:
    """Return the step from which the validation score stays at the threshold or above; None where it never does."""
    first = None
    for record in history:
        if "validation" in record:
            value = record["validation"].get(score)
            if value is None or value < threshold:
                first = None
            elif first is None:
                first = int(record["step"])
    return first
