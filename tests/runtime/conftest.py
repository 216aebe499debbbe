"""A small captioner of scenes as a run and as an exported folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from legenda.data.captions import ScenesData
from legenda.export import export_captioner
from legenda.models.checkpoint import load_with_config


@pytest.fixture(scope="session")
def run_and_export(make_run, tmp_path_factory) -> tuple[Path, Path]:
    """A run with random weights, and what `legenda export` writes of it."""
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    run = make_run("ngsan", ScenesData(train=40, validation=2), options={"max_regions": 6}, summary="of scenes")
    folder = tmp_path_factory.mktemp("exported") / "ngsan"
    model, config = load_with_config(run)
    export_captioner(model, folder, config=config)
    return run, folder


@pytest.fixture(scope="session")
def exported(run_and_export) -> Path:
    """An exported folder, which tests do not change."""
    return run_and_export[1]
