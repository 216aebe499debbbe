"""A finished training run."""

from pathlib import Path

import pytest
from small_runs import run


@pytest.fixture(scope="package")
def completed_run(tmp_path_factory) -> Path:
    """The folder of a run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder)
    return folder
