"""Validation during training is that of the weights at the end of the epoch, whatever is kept of earlier ones."""

import pytest
import safetensors.torch
from lightning_fabric import Fabric
from small_runs import DATA, TRAINING

import legenda
from legenda.papers import get_recipe
from legenda.run_folder import STATE
from legenda.tasks import Captioning
from legenda.training import Constant, train
from legenda.training.checkpoint import read_history
from legenda.training.loop import validate, validation_loss

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("name", "row"),
    [
        *((name, f"coco.{name}") for name in ("ngsan", "aoanet", "xlan")),
        *(
            pytest.param(name, row, marks=pytest.mark.slow)
            for name, row in (
                *((name, f"coco.{name}") for name in ("mdsan", "meshed", "updown", "xtransformer")),
                ("aoanet", "aoanet.table4.lstm"),
                ("aoanet", "aoanet.table4.refine_aoa"),
            )
        ),
    ],
)
def test_validation_is_that_of_the_last_weights(tmp_path, sized, name, row):
    config = TRAINING.replace(epochs=3, schedule=Constant(learning_rate=1e-2), checkpoint_every=0)
    options = sized(name, dim=16, num_heads=2, num_layers=1, ff_dim=16, additive_dim=8, dropout=0.0)
    options = {**options, **get_recipe(row).model_overrides}
    task = Captioning(DATA)
    train(name, options, task, (config,), tmp_path / "run", sections={"recipe": "a test"})
    state = safetensors.torch.load_file(tmp_path / "run" / STATE)
    model = legenda.load(tmp_path / "run")  # with plain products
    model.load_state_dict({key.removeprefix("model."): v for key, v in state.items() if key.startswith("model.")})
    recorded = [record["validation"] for record in read_history(tmp_path / "run") if "validation" in record]
    assert len({scores["loss"] for scores in recorded}) == 3
    loss = validation_loss(Fabric(accelerator="cpu"), task.objective_class(model, config, task.validation))
    assert loss == pytest.approx(recorded[-1]["loss"], rel=1e-5)
    _, scores = validate(Fabric(accelerator="cpu"), task, model, config)
    assert scores["CIDEr-D"] == pytest.approx(recorded[-1]["CIDEr-D"], rel=1e-5)
