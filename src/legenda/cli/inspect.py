"""`legenda inspect`: what a feature store or a run folder holds."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro

from legenda.config import Config
from legenda.errors import DataError
from legenda.run_folder import CONFIG


class InspectOptions(Config):
    """Describe a feature store or a run.

    Of a feature store: layout, images, regions, dimensions, dtype, boxes, ranges and broken entries. Of a run: model,
    parameters, configuration, data, extractor, versions, training and scores. Where something is broken, it is
    named and the exit code is 2.
    """

    path: tyro.conf.Positional[str]
    """A feature store of any format, a run folder, USER/MODEL of Hugging Face's hub, or photo."""
    verify: bool = False
    """Read everything: all images of a store; of a run the weights and all files, and score its predictions again."""
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print JSON, which also has the settings that are empty, off or 0."""


def run(options: InspectOptions) -> None:
    """Print the facts and the problems; raise DataError where there are any."""
    path = Path(options.path)
    if (path.exists() and not (path / CONFIG).is_file()) or ":" in options.path:
        from legenda.features.convert import inspect_store
        from legenda.terminal import progress_bar

        with progress_bar(f"reading {path}") as update:
            facts, problems = inspect_store(path, verify=options.verify, progress=update)
    else:
        from legenda.evaluation.describe import inspect_run

        facts, problems = inspect_run(options.path, verify=options.verify)
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
        raise DataError(f"{options.path} has {len(problems)} problems, listed above")


def _format(value: Any) -> str:
    """Return a value on one line: the entries of a mapping as name=value, without those that are empty, off or 0."""
    if isinstance(value, Mapping):
        entries = {name: inner for name, inner in value.items() if inner not in (None, 0, "", "none", [], {})}
        return "  ".join(f"{name}={_nested(inner)}" for name, inner in entries.items())
    return ", ".join(map(_format, value)) if isinstance(value, list) else str(value)


def _nested(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({_format(value)})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
