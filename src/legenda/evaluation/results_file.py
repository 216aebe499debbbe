"""The file evaluation_SPLIT.json of a run: what was predicted, its scores, and what both depend on."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from legenda.io import read_json, write_json

Found = dict[str, float | None]


def evaluation_path(folder: Path, split: str, *, ensemble: bool = False) -> Path:
    """Where a run's folder keeps it; that of several runs together lies with the first of them."""
    return folder / (f"evaluation_{split}_ensemble.json" if ensemble else f"evaluation_{split}.json")


def caption_settings(
    config: Mapping[str, Any], split: str, beam_size: int, metrics: str, data: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What captions and their scores depend on beside the weights, under the names of the file.

    config: the run's config.json. data: as `describe_data` gives them, where they are others than the run's.
    """
    return {
        "split": split,
        "beam_size": beam_size,
        "metrics": metrics,
        "generation_config": config["model"].get("generation_config"),
        "data": config.get("data") if data is None else data,
    }


def read_scores(path: Path, settings: Mapping[str, Any]) -> Found | None:
    """The scores in a file that was made with just these settings; None for another, and where scoring had failed."""
    found = read_json(path, "delete it to evaluate again")
    if not isinstance(found, dict) or any(found.get(name) != value for name, value in settings.items()):
        return None
    return found.get("scores")


def write_evaluation(
    path: Path, settings: Mapping[str, Any], kind: str, predictions: Mapping[str, Any], score: Callable[[], Found]
) -> Found:
    """Scores the predictions and writes them, under the name of their kind, with settings and scores; gives these.

    The predictions are written even where `score` raises; the file's scores are then null.
    """
    scores: Found | None = None
    try:
        scores = score()
    finally:
        write_json(path, {**settings, "scores": scores, kind: predictions})
    return scores


def print_scores(scores: Found, split: str, missing_targets: str | None) -> None:
    """Prints the scores, or that there are none.

    missing_targets: what the split lacks, such as "captions"; None where it lacks nothing.
    """
    if missing_targets is not None:
        print(f"the split {split} has no {missing_targets}, so nothing is scored")
    for name, value in scores.items():
        print(f"{name:<8} {'none' if value is None else f'{value:.4f}'}")
