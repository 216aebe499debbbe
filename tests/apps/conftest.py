"""Models that the tests of `legenda serve` share."""

from typing import TYPE_CHECKING

import pytest
import torch

import legenda
from legenda.apps.runs import describe_data, open_run
from legenda.data.caption_sets import ScenesData

if TYPE_CHECKING:
    from legenda.apps.serve_engine import Served


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
