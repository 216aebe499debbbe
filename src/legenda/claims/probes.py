"""Numbers of a run other than its scores: of its captions, its weights and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean

from legenda.claims.runs import ClaimRun
from legenda.evaluation.results_file import evaluation_path
from legenda.io import read_json


def _captions(run: ClaimRun) -> list[list[str]]:
    """Return the words of the test captions."""
    captions = read_json(evaluation_path(run.folder, "test"), "evaluate the run again")["captions"]
    return [caption.split() for caption in captions.values()]


def mean_length(run: ClaimRun) -> float:
    """Return the words of a test caption on average."""
    return fmean(map(len, _captions(run)))


def distinct_captions(run: ClaimRun) -> float:
    """Return the number of different test captions for each test image."""
    captions = _captions(run)
    return len({tuple(words) for words in captions}) / len(captions)


PROBES: Mapping[str, Callable[[ClaimRun], float]] = {
    "mean_length": mean_length,
    "distinct_captions": distinct_captions,
}
"""Functions from a run to a number, by name."""
