"""What a run folder holds: model, training, data, versions and scores, and what of it is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from legenda.data.features.identity import extractor_name
from legenda.errors import CheckpointError, LegendaError
from legenda.evaluation.data import check_extractor
from legenda.evaluation.runs import Run, load_run
from legenda.evaluation.tasks import load_examples
from legenda.io import read_json
from legenda.models.location import find_model
from legenda.models.registry import build_model, describe_model
from legenda.plugin_records import check_plugins
from legenda.run_config import read_config
from legenda.run_files import CONFIG, HISTORY, STATE
from legenda.training.checkpoint import read_progress
from legenda.training.history import read_history

_TOLERANCE = 1e-6
"""The largest difference of a stored score from the score of the stored predictions."""


def inspect_run(name: str | Path, *, verify: bool = False) -> tuple[dict[str, Any], list[str]]:
    """Return facts about a run folder by name, and what is damaged or does not fit, as sentences.

    name: as `find_model` takes it. verify: whether to load the weights, read every file, open the data, and score the
    stored predictions again. Raise LegendaError where config.json is missing, damaged, or of an unknown model.
    """
    folder = find_model(name)
    config = read_config(folder, "a run folder holds it; train the run again")
    check_plugins(config, folder / CONFIG, "model")
    try:
        section = config["model"]
        with torch.device("meta"):
            model = build_model(section["name"], section["options"])
    except (KeyError, TypeError) as error:
        raise CheckpointError(f'{folder / CONFIG} has no usable "model" part; train the run again') from error
    facts = {
        "folder": str(folder.resolve()),
        "model": f"{model.name}: {describe_model(model.name).summary}",
        "parameters": f"{model.parameter_count:,}",
        "task": describe_model(model.name).task,
        "options": section["options"],
        "generation": section.get("generation_config"),
        **{key: config.get(key) for key in ("recipe", "imported", "init_from", "data")},
        "extractor": extractor_name(str(config["extractor"])) if config.get("extractor") else None,
        "plugins": [f"{plugin['name']} ({plugin['digest'][:8]})" for plugin in config.get("plugins", [])],
        **{f"stage {number}": stage for number, stage in enumerate(config.get("stages", []), start=1)},
        "written by": config.get("environment"),
        "training": _describe_training(folder),
        "files": {path.name: f"{path.stat().st_size:,} bytes" for path in sorted(folder.iterdir()) if path.is_file()},
        **{path.name: _describe_evaluation(path) for path in _evaluations(folder)},
    }
    problems = list(_verify(folder)) if verify else []
    return {key: value for key, value in facts.items() if value not in (None, [], {}, "")}, problems


def _describe_training(folder: Path) -> dict[str, Any] | None:
    if not (folder / STATE).exists():
        return None
    progress = read_progress(folder)
    return {
        "steps": progress.step,
        "epochs": progress.epoch,
        "seconds": round(progress.seconds),
        "best": progress.best,
        "best_epoch": progress.best_epoch,
        "finished": progress.finished,
    }


def _evaluations(folder: Path) -> list[Path]:
    return sorted(folder.glob("evaluation_*.json"))


def _describe_evaluation(path: Path) -> dict[str, Any]:
    content = read_json(path, "write it again with legenda evaluate")
    names = ("split", "images", "examples", "beam_size", "scores")
    return {name: content[name] for name in names if isinstance(content, Mapping) and name in content}


def _verify(folder: Path) -> Iterator[str]:
    """Yield the problems that each of `_CHECKS` finds; a model that cannot be loaded ends the checks.

    Loading verifies the checksum of the weights and that they are finite.
    """
    try:
        run = load_run(folder)
    except LegendaError as error:
        yield str(error)
        return
    for check in _CHECKS:
        try:
            yield from check(run)
        except LegendaError as error:
            yield str(error)


def _check_history(run: Run) -> Iterator[str]:
    if (run.folder / HISTORY).exists():
        steps = [record["step"] for record in read_history(run.folder)]
        if steps != sorted(steps):
            yield f"{run.folder / HISTORY} is not in the order of steps; copy the run again"


def _check_data(run: Run) -> Iterable[str]:
    if "data" in run.config:
        check_extractor(run, run.data().split("train"))
    return ()


def _check_scores(run: Run) -> Iterator[str]:
    """Score the stored predictions again where they were made on the run's own data."""
    for path in _evaluations(run.folder):
        content = read_json(path, "write it again with legenda evaluate")
        if (
            not isinstance(content, Mapping)
            or not content.keys() & {"captions", "predictions"}
            or "split" not in content
        ):
            yield f"{path} is not the file of an evaluation; write it again with legenda evaluate"
            continue
        predictions, scores = content.get("captions", content.get("predictions")), content.get("scores") or {}
        numbers = isinstance(scores, Mapping) and all(
            isinstance(value, int | float | None) for value in scores.values()
        )
        if not isinstance(predictions, Mapping) or not numbers:
            yield f"{path} has predictions or scores that are no object; write it again with legenda evaluate"
            continue
        data = run.config.get("data")
        if data is None or "runs" in content or content.get("data", data) != data:
            continue
        found = run.task.score(predictions, load_examples(run, content["split"]))
        for name, value in found.items():
            stored = scores.get(name)
            if value is not None and stored is not None and abs(value - stored) > _TOLERANCE:
                yield f"{path} has {name} {stored:.4f}, but its predictions score {value:.4f}; evaluate the run again"


_CHECKS: tuple[Callable[[Run], Iterable[str]], ...] = (_check_history, _check_data, _check_scores)
"""What `verify` checks once the model is loaded; checksums of the files belong here."""
