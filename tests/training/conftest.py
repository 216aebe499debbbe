"""A finished training run."""

from pathlib import Path

import pytest
import torch
from small_runs import run


@pytest.fixture(scope="package")
def completed_run(tmp_path_factory) -> Path:
    """The folder of a run that was never stopped."""
    folder, threads = tmp_path_factory.mktemp("whole") / "run", torch.get_num_threads()
    torch.set_num_threads(1)  # `one_thread` of the modules comes later
    run(folder)
    torch.set_num_threads(threads)
    return folder
