"""One run gives the same captions, to the last token, by every door: validation, commands, server, export and hub."""

import io
import json

import numpy as np
import pytest

import legenda
from legenda.config import to_json
from legenda.data.captions import ScenesData
from legenda.data.scenes import draw_scene
from legenda.evaluation.runs import load_run
from legenda.export import export_captioner
from legenda.models import packing
from legenda.tasks import Captioning
from legenda.tasks.base import SelfCriticalConfig
from legenda.training import Constant, TrainingConfig, train
from legenda.training import loop as loop_module

pytestmark = pytest.mark.usefixtures("one_thread")

DATA = ScenesData(train=24, validation=6, test=2)
STAGE = TrainingConfig(epochs=2, batch_size=4, captions_per_image=2, schedule=Constant(learning_rate=1e-3))
WIDE = {"dim": 512, "num_heads": 8, "num_layers": 1, "decoder_layers": 1, "ff_dim": 2048, "word_dim": 512}
SMALL = {"dim": 16, "num_heads": 2, "num_layers": 1, "decoder_layers": 1, "ff_dim": 16, "geometry_dim": 8}
MODELS = ("transformer", "nsan", "gsan", "ngsan", "aoanet", "xlan", "xtransformer", "mdsan")
SIZES = [
    pytest.param("ngsan", SMALL, 1, id="ngsan, small"),
    *(pytest.param(name, WIDE, packing.MIN_NUMEL, id=name, marks=pytest.mark.slow) for name in MODELS),
]


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(("name", "sizes", "threshold"), SIZES)
def test_captions_are_the_same_by_every_door(name, sizes, threshold, sized, run_command, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "MIN_NUMEL", threshold)
    wide, run = sizes is WIDE, tmp_path / "run"
    validated = []
    original = loop_module.validate
    monkeypatch.setattr(loop_module, "validate", lambda *args: validated.append(original(*args)) or validated[-1])
    objective = {"objective": "self_critical", "self_critical": SelfCriticalConfig(num_samples=2, max_length=12)}
    rates = sized(name, dropout=0.05)
    second = STAGE.replace(epochs=1, dropout=rates, schedule=Constant(learning_rate=1e-5), **objective)
    sections = {"name": f"scenes.{name}", "data": to_json(DATA, run)}
    data = DATA.open(lambda _: None)
    first = STAGE.replace(epochs=2 if wide else 1)
    trained = train(name, sized(name, **sizes), Captioning(data), (first, second), run, sections=sections)
    expected = validated[trained.best_epoch - 1][0]
    assert len(validated) == first.epochs + 1
    assert any(expected.values())
    assert packing.packed(legenda.load(run)) is not legenda.load(run)

    assert run_command(f"evaluate {run} --split val")[0] == 0
    assert json.loads((run / "evaluation_val.json").read_text())["captions"] == expected
    assert run_command(f"evaluate {run} --split val --stage 1")[0] == 0
    assert (
        json.loads((run / "evaluation_val_stage1.json").read_text())["captions"]
        == max(validated[: first.epochs], key=lambda scored: scored[1]["CIDEr-D"])[0]
    )

    images = [draw_scene(scene) for scene in DATA.generate("val").scenes]
    tokens = [caption.tokens for caption in legenda.open(run).caption(images)]
    assert [legenda.load(run).vocabulary.decode(row) for row in tokens] == list(expected.values())
    model = load_run(run).model
    assert model.caption(data.validation.read(np.arange(len(images)))) == list(expected.values())

    assert run_command(f"push {run} somebody/{name}")[0] == 0
    monkeypatch.chdir(tmp_path)
    pushed = legenda.open(f"somebody/{name}")
    assert [caption.tokens for caption in pushed.caption(images)] == tokens

    _check_served(legenda.open(run), images, list(expected.values()))
    if wide:
        assert export_captioner(model, tmp_path / "torch", format="torch").max_difference < 1e-3
        assert run_command(f"export {run} --out {tmp_path / 'onnx'}")[0] == 0
        exported = legenda.open(tmp_path / "onnx")
        assert [caption.tokens for caption in exported.caption(images)] == tokens


def _check_served(pipeline, images, expected):
    testclient = pytest.importorskip("fastapi.testclient", reason="needs the extra serve")
    pytest.importorskip("multipart", reason="needs the extra serve")
    from legenda.serve.app import create_app
    from legenda.serve.engine import Engine

    with Engine({"run": pipeline}) as engine:
        app = create_app(engine, {}, {})
        with testclient.TestClient(app, base_url="http://localhost") as client:
            for image, caption in zip(images, expected, strict=True):
                file = io.BytesIO()
                image.save(file, "PNG")
                answer = client.post("/api/captions", files={"image": ("a.png", file.getvalue())})
                assert answer.status_code == 200
                assert answer.json()["captions"][0]["text"] == caption
