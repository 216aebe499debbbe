"""What the tests of commands share: a way to call one, and models to serve."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from PIL import Image

from command_results import SCENES, SHORT, TINY
from legenda.cli.main import main
from legenda.config import to_json
from legenda.data.captions import KarpathyData, ScenesData
from legenda.data.registry import Data
from legenda.evaluation.runs import load_captioner_run
from legenda.extractors import extract_store, load_extractor
from legenda.tasks.base import TASKS

if TYPE_CHECKING:
    from legenda.pipeline import Pipeline


ROOT = Path(__file__).resolve().parents[1]


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
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return code, output.out, output.err

    return call


@pytest.fixture(scope="session")
def make_run(tmp_path_factory, sized) -> Callable[..., Path]:
    """A run folder with a model of random weights, small, but with a long way to its end."""
    sizes = {"dim": 8, "num_heads": 2, "num_layers": 1, "ff_dim": 8, "geometry_dim": 4}
    sizes |= {"pool_dim": 8, "pooled_dim": 8, "word_dim": 8}

    def make(
        name: str,
        data: Data,
        folder: str = "",
        options: dict | None = None,
        *,
        task: str = "captioning",
        seed: int | None = None,
        **sections: object,
    ) -> Path:
        opened = data.open(lambda _: None)
        torch.manual_seed(len(name) if seed is None else seed)
        small = sized(name, **sizes, dropout=0.0)
        model = TASKS.get(task)(opened).create(name, small | (options or {})).eval()
        path = tmp_path_factory.mktemp("runs") / (folder or name)
        extractor = getattr(opened.train, "extractor", None)
        described = {
            "name": f"scenes.{name}",
            "data": to_json(data, path),
            "extractor": extractor and extractor.to_json(),
        }
        return model.save(path, **(described | {"task": task} | sections))

    return make


@pytest.fixture(scope="session")
def scenes_run(tmp_path_factory) -> Path:
    """A model of scenes, trained for one epoch."""
    folder = tmp_path_factory.mktemp("scenes") / "run"
    main(f"train scenes.ngsan --out {folder} {TINY} {SHORT} {SCENES}".split())
    return folder


@dataclass(frozen=True)
class Photographs:
    """A tiny data set: its folder of pictures and its settings."""

    folder: Path
    data: KarpathyData


@pytest.fixture(scope="session")
def noisy_photographs(tmp_path_factory) -> Photographs:
    """Six noisy pictures of their own width beside their annotations, read from a grid of 4 x 4 cells."""
    root = tmp_path_factory.mktemp("photographs")
    folder = root / "images"
    folder.mkdir()
    random = np.random.default_rng(0)
    entries = []
    for number in range(6):
        pixels = random.integers(0, 256, (90, 120, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"p{number}.jpg")
        sentences = [{"raw": f"a dog number {word} runs"} for word in ("one", "two", "one")]
        split = "train" if number < 3 else "val"
        entries.append({"filename": f"p{number}.jpg", "split": split, "sentences": sentences})
    (root / "dataset.json").write_text(json.dumps({"images": entries}))
    extractor = load_extractor(ROOT / "examples" / "my_extractor.py")
    extract_store(sorted(folder.iterdir()), extractor, root / "features.safetensors")
    data = KarpathyData(annotations=root / "dataset.json", features=root / "features.safetensors", min_count=1)
    return Photographs(folder, data)


@pytest.fixture(scope="session")
def served(make_run) -> dict[str, "Pipeline"]:
    """Two small models of scenes with random weights."""
    pytest.importorskip("fastapi", reason="needs the extra serve")
    from legenda.pipeline import Pipeline

    runs = [load_captioner_run(make_run(name, ScenesData(train=40, validation=2))) for name in ("ngsan", "xlan")]
    return {run.model.name: Pipeline(run.captioner, run.resolve_extractor(None)) for run in runs}
