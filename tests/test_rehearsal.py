"""A rehearsal of README and guides: their commands, in order, on models as wide as the papers' and COCO's formats.

The models have the papers' channels and one layer, the data a few images of 2,048 channels, both stages a few steps.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import legenda
from default_data import write_default_data
from legenda.cli.main import COMMANDS
from legenda.importers.loading import _fill, _pattern, read_names
from legenda.models.checkpoint import load_any
from legenda.models.xtransformer import positions
from legenda.papers import get_recipe, shared_recipe
from legenda.training import is_finished
from legenda.training.loop import TrainingLoop
from test_docs_coco import write_captions, write_features, write_images

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

TABLES = {
    "transformer": ("ngsan.table6", None),
    "nsan": ("ngsan.table6", None),
    "gsan": ("ngsan.table6", None),
    "ngsan": ("ngsan.table6", None),
    "aoanet": ("aoanet.table1", "aoanet.table1_xe"),
    "xlan": ("xlan.table1", "xlan.table1_xe"),
    "xtransformer": ("xlan.table1", "xlan.table1_xe"),
    "mdsan": ("mdsan.table1", None),
}
"""A table with each model after both stages, and one after the first."""
SHORT = "batch_size=11 captions_per_image=2 eval_beam_size=1 gradient_accumulation_steps=1"
RATES = {"aoanet": 1e-3}
"""Learning rates of the first stage where 5e-4 gives no captions in a few steps."""
EXTRACTOR = """import numpy as np

BOXES = np.outer(np.linspace(0.5, 1, 4), [0, 0, 1, 1])  # like those of the training
PATTERN = np.random.default_rng(0).random((4, 2048), np.float32)


def extract(images):
    means = [np.asarray(image.resize((2, 2))).reshape(4, 3).mean(axis=1, keepdims=True) / 255 for image in images]
    return [((PATTERN + mean) % 1, BOXES) for mean in means]
"""


@pytest.fixture
def legenda_command(run_command) -> Callable[..., str]:
    """Run a command that must succeed, and return what it prints."""

    def call(*line: object) -> str:
        code, out, err = run_command(*map(str, line))
        assert code == 0, f"legenda {' '.join(map(str, line))}: {err}"
        return out

    return call


@pytest.fixture(scope="module")
def coco(tmp_path_factory) -> Path:
    """A folder of COCO's captions, images and features, as the guide downloads them, and an extractor."""
    folder = tmp_path_factory.mktemp("coco")
    write_captions(folder)
    write_features(folder)
    write_images(folder / "val2014.zip", "val2014", range(42, 52))
    for archive in folder.glob("**/*.zip"):
        zipfile.ZipFile(archive).extractall(archive.parent)
        archive.unlink()
    (folder / "own.py").write_text(EXTRACTOR)
    return folder


@pytest.fixture
def disk(coco, monkeypatch, legenda_command) -> None:
    """The current folder is that of COCO, with converted features."""
    monkeypatch.chdir(coco)
    if not Path("coco.safetensors").exists():
        printed = legenda_command(
            "convert",
            *sorted(map(str, Path("bottom-up").glob("trainval/*.tsv*"))),
            "coco.safetensors",
            "--float16 --extractor bottom-up",
        )
        assert "30 images" in printed
        legenda_command(
            "convert X-101-features/train2014 X-101-features/val2014 coco_grid.safetensors --extractor grid"
        )
        assert "30 images" in legenda_command("convert coco.safetensors back")
        assert np.load("back/50.npz")["feat"].shape[1] == 2048
        legenda_command("inspect coco.safetensors --verify")
        assert "10 images" in legenda_command("extract val2014 --extractor own.py --out own.safetensors --workers 1")


def changes(model: str, first: str = "training", second: str | None = "fine_tuning") -> list[str]:
    """Return the options that make a model shallow and its training short."""
    fields = legenda.models.describe_model(model).config.model_fields
    layers = [f"model.{name}=1" for name in ("num_layers", "decoder_layers") if name in fields]
    stages = [first, *([second] if second else [])]
    short = [f"{stage}.{option}" for stage in stages for option in SHORT.split()]
    short += [f"{first}.schedule.kind=constant", f"{first}.schedule.learning_rate={RATES.get(model, 5e-4)}"]
    return ["data.min_count=1", *layers, f"{first}.epochs=6", *([f"{second}.epochs=1"] if second else []), *short]


def stop_once(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Stop the next training by a signal at a step."""
    import os
    import signal

    original, stopped = TrainingLoop._learning_rate, []

    def signalled(self: TrainingLoop, *arguments: Any) -> Any:
        if self.progress.step == step and not stopped:
            stopped.append(os.kill(os.getpid(), signal.SIGTERM))
        return original(self, *arguments)

    monkeypatch.setattr(TrainingLoop, "_learning_rate", signalled)


def released(kind: str, run: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a run under their released names."""
    model = legenda.load(run)
    dim, names = model.config.dim, read_names(kind)
    if kind == "aoanet":
        names |= {"encoder.input": "att_embed.0", "decoder.attention.query": "core.attention.linears.0"}
        names |= {
            "decoder.attention.value": ("ctx2att", slice(0, dim)),
            "decoder.attention.key": ("ctx2att", slice(dim, None)),
        }
    if kind == "xtransformer":
        names |= {"encoder.norm": "att_embed.2"}
    patterns = {_pattern(target, r"(?=\.|$)"): name for target, name in names.items()}
    tensors: dict[str, torch.Tensor] = {}
    for key, value in model.state_dict().items():
        match, name = next((match, name) for pattern, name in patterns.items() if (match := pattern.match(key)))
        name, part = name if isinstance(name, tuple) else (name, slice(None))
        whole = _fill(name, match.groups()) + key[match.end() :]
        parts = (tensors[whole], value) if whole in tensors else (value,)
        tensors[whole] = torch.cat(parts if part.start is not None and part.start > 0 else parts[::-1])
    if kind == "xtransformer":
        tensors["decoder.embed_positions.pe"] = positions(0, 5000, dim, 10000.0, torch.device("cpu")).unsqueeze(0)
    return tensors


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize("model", TABLES)
def test_a_captioner(model, tmp_path, monkeypatch, legenda_command, run_command, hub):
    name, (table, table_xe) = f"coco.{model}", TABLES[model]
    recipe, picture = shared_recipe(name, "all")[0], next(Path("val2014").glob("*.jpg"))
    features = get_recipe(name).data.features
    assert f'name = "{model}"' in legenda_command("recipes", recipe)
    tables, run = tmp_path / "tables", tmp_path / "tables" / recipe / "seed0"

    train = ["train", recipe, *changes(model), "--out", run]
    stop_once(monkeypatch, 1)
    assert run_command(*map(str, train))[0] == 143
    legenda_command(*train)
    assert is_finished(run, recipe)
    assert (run / "model_stage1.safetensors").exists()
    written = (run / "model.safetensors").stat().st_mtime_ns

    whole = legenda.load(run)
    assert whole.parameter_count > 5_000_000
    legenda_command("inspect", run, "--verify")
    for stage, ending in (([], ""), (["--stage", 1], "_stage1")):
        legenda_command("evaluate", run, "--split test --metrics fast --beam-size 2", *stage)
        assert len(json.loads((run / f"evaluation_test{ending}.json").read_text())["captions"]) == 4
    legenda_command("score", run / "evaluation_test.json", "dataset_coco.json --split test --metrics fast")

    for of_paper in filter(None, (table, table_xe)):
        printed = legenda_command("table", of_paper, *changes(model), "--rows", model, "--estimate none --out", tables)
        assert " here " in printed
    assert (run / "model.safetensors").stat().st_mtime_ns == written
    assert [path.name for path in tables.iterdir() if path.is_dir()] == [recipe]

    tuned = tmp_path / "tuned"
    legenda_command(
        "train", recipe, "--init-from", run, *changes(model, second=None)[1:], "data.min_count=1", "--out", tuned
    )
    for runs in ([tuned], [run, tuned]):
        legenda_command("evaluate", *runs, "--split test --metrics fast --beam-size 2")
    legenda_command("compare", run, tuned, "--split test")
    page = legenda_command(
        "report", run, tuned, "--beam-size 2 --out", tmp_path / "report.html", "--overlays", tmp_path / "sheets"
    )
    assert "4 images" in page
    assert f"{whole.parameter_count}" in (tmp_path / "report.html").read_text()

    own = ["--extractor own.py --ignore-extractor-mismatch --beam-size 1"]
    expected = legenda_command("caption", picture, "--model", run, *own)
    assert len(expected.partition(": ")[2].split()) > 1
    answers = []

    def answer(app: Any, *_: Any, **__: Any) -> None:
        from fastapi.testclient import TestClient

        with TestClient(app, base_url="http://localhost") as client:
            answers.append(client.post("/api/captions", files={"image": picture.read_bytes()}).json())
            answers.append(client.get("/").text)

    monkeypatch.setattr("legenda.serve.server.run_server", answer)
    legenda_command("serve", run, *own)
    assert answers[0]["captions"][0]["text"] == expected.strip().partition(": ")[2]

    legenda_command("push", run, f"somebody/{model}")
    assert hub.files[f"somebody/{model}"]["model.safetensors"] == (run / "model.safetensors").read_bytes()
    assert f"{whole.parameter_count:,}" in hub.files[f"somebody/{model}"]["README.md"].decode()
    assert legenda_command("caption", picture, "--model", f"somebody/{model}", *own) == expected
    hub.files.clear()
    hub.large.clear()

    for kind in ("onnx", "torch"):
        legenda_command("export", run, "--format", kind, "--out", tmp_path / kind)
    shutil.rmtree(tmp_path / "torch")

    if model in ("aoanet", "xlan", "xtransformer", "mdsan"):
        weights = released(model, run)
        torch.save(weights, tmp_path / "released.pth")
        imported = tmp_path / "imported"
        legenda_command(
            "import", model, tmp_path / "released.pth", "--vocabulary", run / "vocabulary.txt", "--out", imported
        )
        loaded = legenda.load(imported).state_dict()
        for key, value in whole.state_dict().items():
            torch.testing.assert_close(loaded[key], value, rtol=0, atol=0)
        legenda_command("caption", picture, "--model", imported, "--extractor own.py")
        legenda_command(
            "report",
            imported,
            "--annotations dataset_coco.json --features",
            features,
            "--split test --out",
            tmp_path / "imported.html",
        )


TASKS = {
    "vqa2.mcan_small": ("mcan", "mdsan.table14_regions", "mcan_small"),
    "refcocog.mcan": ("mcan_grounding", "mdsan.table15_refcocog", "mcan"),
    "wmt14.nsa": ("translator", "ngsan.table8", "nsa"),
    "vatex.nsan": ("nsan", "ngsan.table7", "nsan"),
    "msrvtt.aoa": ("aoanet", "aoanet.section4_6", "aoa"),
}
"""A recipe of each other task with its model, and the table and the row that it is."""


@pytest.mark.parametrize("recipe", TASKS)
def test_another_task(recipe, tmp_path, monkeypatch, legenda_command, run_command):
    write_default_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    model, table, row = TASKS[recipe]
    stages = [("training", "fine_tuning")[number] for number in range(len(get_recipe(recipe).stages))]
    fields = legenda.models.describe_model(model).config.model_fields
    short = [f"model.num_layers={min(1, fields['num_layers'].default)}"] if recipe != "msrvtt.aoa" else []
    for stage in stages:
        captions = [f"{stage}.captions_per_image=2"] if model in ("nsan", "aoanet") else []
        short += [f"{stage}.epochs=2", f"{stage}.batch_size=4", f"{stage}.eval_beam_size=1", *captions]
        short += [f"{stage}.gradient_accumulation_steps=1", f"{stage}.precision=float32"]
        short += [f"{stage}.averaging_start_epoch=1"] if recipe == "wmt14.nsa" else []
    short += ["data.pieces=0"] if recipe == "wmt14.nsa" else []
    tables = Path("tables")
    run = tables / recipe / "seed0"
    train = ["train", recipe, *short, "--out", run]
    stop_once(monkeypatch, 1)
    assert run_command(*map(str, train))[0] == 143
    legenda_command(*train)
    written = (run / "model.safetensors").stat().st_mtime_ns
    count = load_any(run).parameter_count
    assert count > 5_000_000
    legenda_command("evaluate", run, "--split val --beam-size 2")
    split = "--split val" if recipe == "vatex.nsan" else ""  # its test captions are not public
    printed = legenda_command("table", table, *short, "--rows", row, split, "--estimate none --out", tables)
    assert " here " in printed
    assert (run / "model.safetensors").stat().st_mtime_ns == written
    tuned = Path("tuned")
    legenda_command("train", recipe, "--init-from", run, *[s for s in short if "fine_tuning" not in s], "--out", tuned)
    legenda_command("evaluate", tuned, "--split val --beam-size 2")
    legenda_command("compare", run, tuned, "--split val")
    legenda_command("report", run, tuned, "--split val --out report.html")
    assert str(count) in Path("report.html").read_text()
    legenda_command("inspect", run, "--verify")


def test_every_command_is_rehearsed():
    """`demo` has a test of its own, and `models` needs no run."""
    source = Path(__file__).read_text(encoding="utf-8")
    called = set(re.findall(r"legenda_command\(\s*\"(\w+)", source)) | set(re.findall(r"\[\"(train)\"", source))
    assert set(COMMANDS) - {"demo", "models"} <= called
