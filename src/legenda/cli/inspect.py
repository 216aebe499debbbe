"""`legenda inspect`: what a feature store or a run folder holds, or what Legenda runs on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import tyro

from legenda.config import Config
from legenda.environment import describe_installation
from legenda.errors import ConfigError, DataError
from legenda.hub import find_model
from legenda.io import FEATURE_SUFFIXES
from legenda.run_folder import CONFIG, WEIGHTS
from legenda.runtime.captioner import is_exported
from legenda.terminal import counted


class InspectOptions(Config):
    """Describe a feature store, a run, an exported model, or what Legenda runs on.

    A feature store is described by its layout, images, regions, dimensions, dtype, boxes, ranges and broken entries; a
    run by its model, parameters, configuration, data, extractor, versions, training and scores. Where something is
    broken, it is named and the exit code is 2.
    """

    path: tyro.conf.Positional[str | None] = None
    """A feature store of any format, a run folder, an exported folder, USER/MODEL of Hugging Face's hub, or photo."""
    verify: bool = False
    """Read everything: all images of a store; of a run the weights and all files, and score its predictions again."""
    environment: bool = False
    """Instead of a path: print versions, devices and extras, one block to paste into a bug report."""
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print JSON, which also has the settings that are empty, off or 0."""


def run(options: InspectOptions) -> None:
    """Print the facts and the problems; raise DataError where there are any."""
    if options.environment:
        if options.path is not None or options.verify:
            raise ConfigError("--environment takes no path and no --verify; leave them out")
        facts, problems = describe_installation(), []
    elif options.path is None:
        raise ConfigError("name a feature store, a run, an exported model or a model of the hub, or --environment")
    else:
        facts, problems = _inspect_path(options.path, verify=options.verify)
    if options.as_json:
        print(json.dumps({**facts, "problems": problems}, indent=2, ensure_ascii=False))
    else:
        width = max(map(len, facts))
        for name, value in facts.items():
            print(f"{name:<{width}}  {_format(value)}")
        for problem in problems:
            print(f"problem: {problem}")
        if options.verify and not problems:
            print("no problems found")
    if problems:
        raise DataError(f"{options.path} has {counted(len(problems), 'problems')}, listed above")


def _inspect_path(name: str, *, verify: bool) -> tuple[Mapping[str, object], list[str]]:
    """Return the facts and problems of a feature store, a run or an exported model."""
    path = Path(name)
    is_model = (path / CONFIG).is_file() or is_exported(path)
    if not is_model and (path.exists() or ":" in name or path.suffix in FEATURE_SUFFIXES):
        from legenda.features.convert import inspect_store
        from legenda.terminal import progress_bar

        with progress_bar(f"reading {path}") as update:
            return inspect_store(path, verify=verify, progress=update)
    return _inspect_model(find_model(name), verify=verify)


def _inspect_model(folder: Path, *, verify: bool) -> tuple[dict[str, object], list[str]]:
    """Return the facts and problems of a run or an exported model; without PyTorch, what their files state."""
    from legenda.evaluation.inspection import inspect_exported, inspect_files

    if is_exported(folder) and not (folder / WEIGHTS).exists():
        return inspect_exported(folder, verify=verify)
    try:
        from legenda.evaluation.describe import inspect_run
    except ModuleNotFoundError:
        if verify:
            raise
        return inspect_files(folder), []
    return inspect_run(folder, verify=verify)


def _format(value: object) -> str:
    """Return a value on one line: the entries of a mapping as name=value, without those that are empty, off or 0."""
    if isinstance(value, Mapping):
        entries = {name: inner for name, inner in value.items() if inner not in (None, 0, "", "none", [], {})}
        return "  ".join(f"{name}={_nested(inner)}" for name, inner in entries.items())
    return ", ".join(map(_format, value)) if isinstance(value, list) else str(value)


def _nested(value: object) -> str:
    if isinstance(value, Mapping):
        return f"({_format(value)})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
