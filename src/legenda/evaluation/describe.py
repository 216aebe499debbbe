"""The contents of a run: its facts, its verification, and its model card on Hugging Face's hub."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from legenda.errors import DataError, LegendaError
from legenda.evaluation.evaluate import ScoreDict, load_examples
from legenda.evaluation.inspection import describe_run, evaluations
from legenda.evaluation.runs import CaptionerRun, Run, check_extractor, load_run
from legenda.features.extractors import needs_no_file
from legenda.hub import find_model
from legenda.images.extractor import UNNAMED
from legenda.io import read_json
from legenda.metrics import evaluate, intervals
from legenda.metrics.resampling import Interval
from legenda.models.checkpoint import changed_words, naming_file
from legenda.models.registry import build_model, summarize
from legenda.run_folder import CONFIG, HISTORY, STATE, evaluation_path, read_config, split_model
from legenda.terminal import counted
from legenda.training.checkpoint import read_history, read_progress

__all__ = ["inspect_run", "push_run"]

_TOLERANCE = 1e-6
"""The largest difference of a stored score from the score of the stored predictions."""


def inspect_run(name: str | Path, *, verify: bool = False) -> tuple[dict[str, object], list[str]]:
    """Return facts about a run folder by name, and what is damaged or does not fit, as sentences.

    name: as `find_model` takes it. verify: whether to load the weights, read every file, open the data, and score the
    stored predictions again. Raise LegendaError where config.json is missing, damaged, or of an unknown model.
    """
    folder = find_model(name)
    config = read_config(folder, "a run folder holds it; train the run again")
    model_name, options = split_model(config, folder)
    with naming_file(folder / CONFIG), torch.device("meta"):
        model = build_model(model_name, options)
    described = describe_run(folder, config)
    known = {
        "folder": described["folder"],
        "model": f"{model.name}: {config.get('summary') or summarize(model.name, model.config)}",
        "parameters": f"{model.parameter_count:,}",
    }
    facts = {**known, **described, **known, "progress": _describe_training(folder)}  # `known` first, and unchanged
    problems = list(_verify(folder)) if verify else []
    return {key: value for key, value in facts.items() if value not in (None, [], {}, "")}, problems


def _describe_training(folder: Path) -> dict[str, object] | None:
    if not (folder / STATE).exists():
        return None
    progress = read_progress(folder)
    counts = {"steps": progress.step, "epochs": progress.epoch, "seconds": round(progress.seconds)}
    return counts | {name: getattr(progress, name) for name in ("best", "best_epoch", "finished")}


def _verify(folder: Path) -> Iterator[str]:
    """Yield the problems of each check; a model that cannot be loaded ends them.

    Loading verifies the checksum of the weights and that they are finite.
    """
    try:
        run = load_run(folder)
    except LegendaError as error:
        yield str(error)
        return
    if (problem := changed_words(run.model, run.config, folder)) is not None:
        yield problem
    for check in (_check_history, _check_data, _check_scores):
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
    for path in evaluations(run.folder):
        content = read_json(path, "write it again with legenda evaluate")
        content = content if isinstance(content, Mapping) and "split" in content else {}
        predictions, scores = content.get("captions", content.get("predictions")), content.get("scores") or {}
        numbers = isinstance(scores, Mapping) and all(isinstance(n, int | float | None) for n in scores.values())
        if not isinstance(predictions, Mapping) or not numbers:
            yield f"{path} is not the file of an evaluation; write it again with legenda evaluate"
            continue
        data = run.config.get("data")
        if data is None or "runs" in content or content.get("data", data) != data:
            continue
        rescored = run.task.score(predictions, load_examples(run, content["split"]))
        for name, value in rescored.items():
            stored = scores.get(name)
            if value is not None and stored is not None and abs(value - stored) > _TOLERANCE:
                yield f"{path} has {name} {stored:.4f}, but its predictions score {value:.4f}; evaluate the run again"


_LOG = logging.getLogger(__name__)

_PIPELINE_TAGS = {"captioning": "image-to-text", "vqa": "visual-question-answering", "translation": "translation"}


def push_run(folder: str | Path, name: str, *, license: str | None = None, private: bool | None = None) -> str:
    """Upload the model of a run to USER/MODEL on the hub with a model card; return the address.

    config.json is uploaded with names alone instead of paths to files of this machine, and without the machine's
    description. license: its SPDX identifier. Raise LegendaError where the run is damaged or the upload fails.
    """
    run = load_run(folder)
    card = model_card(run, name, license)
    sections = {key: _without_folders(value) for key, value in run.config.items()}
    for key in ("folder", "machine"):
        sections.get("environment", {}).pop(key, None)
    return run.model.push_to_hub(name, config=sections, card=card, private=private)


def model_card(run: Run, name: str, license: str | None = None) -> str:
    """Return the model card of a run as Markdown, with the scores in its evaluation_*.json."""
    environment = run.config.get("environment", {})
    recipe = run.config.get("name")
    data = run.config.get("data")
    facts = {
        "model": f"{run.model.name}, {run.model.parameter_count:,} parameters",
        "for": run.config.get("summary"),
        "task": run.task.name,
        "recipe": recipe,
        "data": None if data is None else ", ".join(f"{key}={_without_folders(value)}" for key, value in data.items()),
        "extractor of the features": None if run.extractor == UNNAMED else str(run.extractor),
        "license": license or "not stated",
        "versions": f"legenda {environment.get('legenda', 'unknown')}, torch {environment.get('torch', 'unknown')}",
    }
    tag = _PIPELINE_TAGS.get(run.task.name)
    metadata = {"library_name": "legenda", "pipeline_tag": tag, "license": license}
    use = f"legenda evaluate {name}"
    if isinstance(run, CaptionerRun):
        ending = "" if needs_no_file(run.extractor) else " --extractor EXTRACTOR"
        use = f"legenda caption photo.jpg --model {name}{ending}"
    scores = [line for path in evaluations(run.folder) for line in _describe_scores(run, path)]
    return "\n".join(
        [
            *("---", *(f"{key}: {value}" for key, value in metadata.items() if value), "---", "", f"# {name}", ""),
            *("| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in facts.items() if value), ""),
            *("## Scores", "", *(scores or ["The run was not evaluated.", ""])),
            *("## Use", "", "```bash", use, "```", ""),
        ]
    )


def _describe_scores(run: Run, path: Path) -> Iterator[str]:
    """Yield the lines of a table of scores, with intervals where the references can be read."""
    content = read_json(path, "delete it, and evaluate the run again")
    if not isinstance(content, dict) or not {"split", "beam_size", "scores"} <= content.keys():
        raise DataError(f"{path} is not the file of an evaluation; delete it, and evaluate the run again")
    if not content["scores"] or path != evaluation_path(run.folder, content["split"]):  # of an ensemble or a stage
        return
    if content.get("weights") != [run.weights]:
        _LOG.warning("the card leaves out %s, which is of other weights; evaluate the run again", path)
        return
    scores: ScoreDict = content["scores"]
    bounds = _compute_intervals(run, content)
    number = content.get("images", content.get("examples"))
    examples = counted(number, "examples") if isinstance(number, int) else "examples"
    yield f"Split {content['split']}, {examples}, beam {content['beam_size']}; 95 % intervals by bootstrap."
    yield from ("", "| metric | score | interval |", "|---|---:|---|")
    for metric, value in scores.items():
        bound = bounds.get(metric)
        interval = "" if bound is None else f"{bound.low:.4f} to {bound.high:.4f}"
        yield f"| {metric} | {'none' if value is None else f'{value:.4f}'} | {interval} |"
    yield ""


def _compute_intervals(run: Run, content: Mapping[str, object]) -> Mapping[str, Interval | None]:
    """Return the intervals of the scores of captions; none where the data of the run cannot be read."""
    captions = content.get("captions")
    if not isinstance(captions, Mapping) or content.get("data") != run.config.get("data"):
        return {}
    try:
        split = run.data().split(str(content["split"]))
        references = dict(zip(split.ids, split.references, strict=True))
        return intervals(evaluate(captions, references, metrics="fast"))
    except LegendaError:
        return {}


def _without_folders(value: object) -> Any:
    """Return a value of JSON with the names alone of paths that are absolute or lead out of the run folder."""
    if isinstance(value, Mapping):
        return {key: _without_folders(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_without_folders(part) for part in value]
    outside = isinstance(value, str) and (Path(value).is_absolute() or Path(value).parts[:1] == ("..",))
    return Path(value).name if outside else value
