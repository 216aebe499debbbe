"""Runs on Hugging Face's hub: the files of the model with a model card made of what the run folder holds."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from legenda.data.features.identity import extractor_name
from legenda.errors import DataError, LegendaError
from legenda.evaluation.results_file import ScoreDict
from legenda.evaluation.runs import CaptionerRun, Run, load_run
from legenda.extractors.registry import needs_no_file
from legenda.io import read_json
from legenda.metrics import WITHOUT_JAVA, evaluate, intervals
from legenda.metrics.resampling import Interval
from legenda.run_files import WEIGHTS, evaluation_file

_LOG = logging.getLogger(__name__)

_PIPELINE_TAGS = {
    "captioning": "image-to-text",
    "vqa": "visual-question-answering",
    "translation": "translation",
}


def push_run(folder: str | Path, name: str, *, license: str | None = None, private: bool | None = None) -> str:
    """Upload the model of a run to USER/MODEL on the hub with a model card; return the address.

    config.json is uploaded with names alone instead of paths to files of this machine, and without the machine's
    description. license: its SPDX identifier. Raise LegendaError where the run is damaged or the upload fails.
    """
    run = load_run(folder)
    card = model_card(run, name, license)
    sections = {key: _without_folders(value) for key, value in run.config.items() if key != "model"}
    for key in ("folder", "machine"):
        sections.get("environment", {}).pop(key, None)
    return run.model.push_to_hub(name, config=sections, card=card, private=private)


def model_card(run: Run, name: str, license: str | None = None) -> str:
    """Return the model card of a run as Markdown, with the scores in its evaluation_*.json."""
    environment = run.config.get("environment", {})
    recipe = run.config.get("recipe")
    data = run.config.get("data")
    facts = {
        "model": f"{run.model.name}, {run.model.parameter_count:,} parameters",
        "task": run.task.name,
        "recipe": recipe,
        "data": None if data is None else ", ".join(f"{key}={_without_folders(value)}" for key, value in data.items()),
        "extractor of the features": extractor_name(str(run.config.get("extractor") or "")),
        "license": license or "not stated",
        "versions": f"legenda {environment.get('legenda', 'unknown')}, torch {environment.get('torch', 'unknown')}",
    }
    tag = _PIPELINE_TAGS.get(run.task.name)
    metadata = {"library_name": "legenda", "pipeline_tag": tag, "license": license}
    scores = [line for path in sorted(run.folder.glob("evaluation_*.json")) for line in _describe_scores(run, path)]
    return "\n".join(
        [
            *("---", *(f"{key}: {value}" for key, value in metadata.items() if value), "---", "", f"# {name}", ""),
            *("| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in facts.items() if value), ""),
            *("## Scores", "", *(scores or ["The run was not evaluated.", ""])),
            *("## Use", "", "```bash", _describe_use(run, name), "```", ""),
        ]
    )


def _describe_use(run: Run, name: str) -> str:
    if not isinstance(run, CaptionerRun):
        return f"legenda evaluate {name}"
    extractor = extractor_name(run.extractor)
    return f"legenda caption photo.jpg --model {name}" + ("" if needs_no_file(extractor) else " --extractor EXTRACTOR")


def _describe_scores(run: Run, path: Path) -> Iterator[str]:
    """Yield the lines of a table of scores, with intervals where the references can be read."""
    content = read_json(path, "delete it, and evaluate the run again")
    if not isinstance(content, dict) or not {"split", "beam_size", "scores"} <= content.keys():
        raise DataError(f"{path} is not the file of an evaluation; delete it, and evaluate the run again")
    if not content["scores"] or path.name != evaluation_file(content["split"]):  # of an ensemble or another stage
        return
    if path.stat().st_mtime < (run.folder / WEIGHTS).stat().st_mtime:
        _LOG.warning("the card leaves out %s, which is older than the weights; evaluate the run again", path)
        return
    scores: ScoreDict = content["scores"]
    bounds = _compute_intervals(run, content)
    number = content.get("images", content.get("examples"))
    yield f"Split {content['split']}, {number} examples, beam {content['beam_size']}; 95 % intervals by bootstrap."
    yield from ("", "| metric | score | interval |", "|---|---:|---|")
    for metric, value in scores.items():
        found = bounds.get(metric)
        interval = "" if found is None else f"{found.low:.4f} to {found.high:.4f}"
        yield f"| {metric} | {'none' if value is None else f'{value:.4f}'} | {interval} |"
    yield ""


def _compute_intervals(run: Run, content: Mapping[str, Any]) -> Mapping[str, Interval | None]:
    """Return the intervals of the scores of captions; none where the data of the run cannot be read."""
    if "captions" not in content or content.get("data") != run.config.get("data"):
        return {}
    try:
        split = run.data().split(content["split"])
        references = dict(zip(split.ids, split.references, strict=True))
        return intervals(evaluate(content["captions"], references, metrics=WITHOUT_JAVA))
    except LegendaError:
        return {}


def _without_folders(value: Any) -> Any:
    """Return a value of JSON with the names alone of paths that are absolute or lead out of the run folder."""
    if isinstance(value, Mapping):
        return {key: _without_folders(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_without_folders(part) for part in value]
    outside = isinstance(value, str) and (Path(value).is_absolute() or Path(value).parts[:1] == ("..",))
    return Path(value).name if outside else value
