"""The data that a run is evaluated on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from legenda.datasets.captions import DataSettings, KarpathyData
from legenda.errors import ConfigError, DataError
from legenda.evaluation.runs import CaptionerRun, Run


def resolve_data(run: CaptionerRun, annotations: Path | None, features: Path | None) -> DataSettings:
    """Return the data that the options name, or those the run was trained on.

    Raise ConfigError where only one of `annotations` and `features` is given.
    """
    if (annotations is None) != (features is None):
        raise ConfigError("--annotations and --features go together; name both")
    if annotations is None or features is None:
        return run.data()
    return KarpathyData(annotations=annotations, features=features)


def check_extractor(run: Run, split: Any) -> None:
    """Raise DataError where the features of a split are not those of the run's extractor.

    Imported runs are not checked: their features have no recorded extractor.
    """
    actual, expected = getattr(split, "extractor", None), run.config.get("extractor")
    if not run.imported and actual != expected:
        raise DataError(
            f"{split.source} was made by the extractor {actual}, but {run.folder} was trained on features of "
            f"{expected}; extract the features again with that extractor"
        )
