"""The contents of a run folder or an exported model, described without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from legenda.config import to_json
from legenda.errors import LegendaError
from legenda.images.extractor import ExtractorIdentity
from legenda.io import read_json
from legenda.models.registry import describe_model
from legenda.run_folder import CONFIG, EVALUATIONS, RunConfig, read_config, split_model, stages_of
from legenda.runtime.captioner import OnnxCaptioner, read_exported


def inspect_exported(folder: Path, *, verify: bool = False) -> tuple[dict[str, object], list[str]]:
    """Return facts about an exported model, and what is damaged or does not fit, as sentences.

    All files are compared with their digests; verify: whether ONNX Runtime opens them too. Raise LegendaError where
    export.json, a file or the vocabulary is missing or damaged.
    """
    settings, vocabulary = read_exported(folder)
    facts = {
        "folder": str(folder.resolve()),
        "model": f"{settings.model}: {settings.summary or 'an exported model'}",
        "parameters": f"{settings.parameter_count:,}",
        "weights": settings.weights,
        "vocabulary": f"{len(vocabulary):,} tokens",
        "extractor": str(settings.extractor),
        "generation": to_json(settings.generation_config),
        "difference from PyTorch": f"{settings.max_difference:.1e}",
        "files": _sizes(folder),
    }
    problems = []
    if verify:
        try:
            OnnxCaptioner.load(folder)
        except LegendaError as error:
            problems.append(str(error))
    return facts, problems


def describe_run(folder: Path, config: RunConfig) -> dict[str, object]:
    """Return facts about a run that its files state; what only its model knows is not among them."""
    name, options = split_model(config, folder)
    entry, extractor = describe_model(name), config.get("extractor")
    return {
        "folder": str(folder.resolve()),
        "model": f"{name}: {config.get('summary') or entry.summary}",
        "task": entry.task,
        "options": options,
        "generation": config.get("generation_config"),
        "recipe": config.get("name"),
        **{key: config.get(key) for key in ("imported", "init_from", "trained_in", "data")},
        "extractor": None if extractor is None else str(ExtractorIdentity.read(extractor, folder / CONFIG)),
        **stages_of(config),
        "written by": config.get("environment"),
        "files": _sizes(folder),
        **{path.name: _describe_evaluation(path) for path in evaluations(folder)},
    }


def inspect_files(folder: Path) -> dict[str, object]:
    """Return the facts of `describe_run` that are not empty; raise LegendaError where config.json is damaged."""
    config = read_config(folder, "a run folder holds it; train the run again")
    return {key: value for key, value in describe_run(folder, config).items() if value not in (None, [], {}, "")}


def evaluations(folder: Path) -> list[Path]:
    """Return the files of the evaluations of a run."""
    return sorted(folder.glob(EVALUATIONS))


def _sizes(folder: Path) -> dict[str, str]:
    return {path.name: f"{path.stat().st_size:,} bytes" for path in sorted(folder.iterdir()) if path.is_file()}


def _describe_evaluation(path: Path) -> dict[str, object]:
    content = read_json(path, "write it again with legenda evaluate")
    names = ("split", "images", "examples", "beam_size", "scores")
    return {name: content[name] for name in names if isinstance(content, Mapping) and name in content}
