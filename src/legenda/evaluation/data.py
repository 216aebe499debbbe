"""The data that a run is evaluated on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from legenda.data.captions import KarpathyData
from legenda.data.features.base import UNNAMED
from legenda.data.features.identity import extractor_name, is_same_extractor
from legenda.errors import ConfigError
from legenda.evaluation.runs import CaptionerRun, Run
from legenda.recipes.recipe import Data


def resolve_data(run: CaptionerRun, annotations: Path | None, features: Path | None) -> Data:
    """Return the data that the options name, or those the run was trained on.

    Raise ConfigError where only one of `annotations` and `features` is given.
    """
    if (annotations is None) != (features is None):
        raise ConfigError("--annotations and --features go together; name both")
    if annotations is None or features is None:
        return run.data()
    return KarpathyData(annotations=annotations, features=features)


def check_extractor(run: Run, split: Any) -> None:
    """Raise ConfigError where the features of a split are not those of the run's extractor.

    Runs without the name of an extractor are not checked: imported ones, and those trained on unnamed features.
    """
    actual, expected = str(getattr(split, "extractor", None)), run.extractor
    if not run.imported and expected != UNNAMED and not is_same_extractor(expected, actual):
        run.refuse_extractor(
            f"{split.source} was made by the extractor {extractor_name(actual)}, but {run.folder} was trained on "
            f"features of {extractor_name(expected)}"
        )
