"""What the tests of commands share: a way to call one, and models to serve."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch

import legenda
from legenda.apps.cli import main
from legenda.apps.runs import describe_data, open_run
from legenda.data.caption_sets import ScenesData

if TYPE_CHECKING:
    from legenda.apps.serve_engine import Served


@pytest.fixture
def run_command(capsys) -> Callable[..., tuple[int, str, str]]:
    """Runs one command line, given whole or in parts; gives exit code, standard output and standard error."""

    def call(*line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = 0
        try:
            main([part for text in line for part in text.split()])
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return call


@pytest.fixture(scope="session")
def served(tmp_path_factory, sized) -> dict[str, "Served"]:
    """Two small models of scenes with random weights."""
    pytest.importorskip("fastapi", reason="needs the extra serve")
    from legenda.apps.serve_engine import Served

    data = ScenesData(train=40, validation=2)
    opened = data.open(lambda _: None)
    models = {}
    for name in ("ngsan", "xlan"):
        torch.manual_seed(3)
        small = sized(name, dim=8, num_heads=2, num_layers=1, ff_dim=8, geometry_dim=4, dropout=0.0)
        model = legenda.create_model(
            name, vocab_size=len(opened.vocabulary), feature_dim=opened.feature_dim, **small
        ).eval()
        model.vocabulary = opened.vocabulary
        folder = tmp_path_factory.mktemp("runs") / name
        model.save(folder, recipe=f"scenes.{name}", data=describe_data(data), extractor="scenes")
        run = open_run(folder)
        models[name] = Served(run, run.extractor(None))
    return models
