"""What the documentation shows works as it stands there."""

import re
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import legenda
from legenda.cli.main import COMMANDS
from legenda.extractors import extract_store, load_extractor
from legenda.features.packed import PackedFeatureStore

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_of_the_readme_runs(capsys):
    example = README.split("```python\n")[1].split("```")[0]
    without_demo = "\n".join(line for line in example.splitlines() if "runs/demo" not in line)
    exec(compile(without_demo, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("torch.Size([2, 3, ")


def test_the_models_that_the_readme_makes_can_be_made():
    names: dict[str, object] = {"legenda": legenda}
    with torch.device("meta"):
        exec(compile(README.split("```python\n")[2].split("```")[0], "README.md", "exec"), names)


def test_the_readme_names_the_commands_there_are():
    named = set(re.findall(r"^    legenda (\w+)", README, flags=re.MULTILINE))
    assert named == set(COMMANDS)


def test_pictures_and_pages_that_the_readme_points_to_exist():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_extractor_to_copy_extracts(tmp_path):
    Image.fromarray(np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)).save(tmp_path / "a.png")
    extractor = load_extractor(ROOT / "examples" / "my_extractor.py")
    report = extract_store([tmp_path / "a.png"], extractor, tmp_path / "f.safetensors")
    store = PackedFeatureStore.open(tmp_path / "f.safetensors")
    assert (report.images, store.feature_dim, store.has_boxes) == (1, 3, True)
    assert store.read(["a"]).mask.sum() == 16


def test_the_example_of_the_page_on_scores_runs(capsys):
    page = (ROOT / "docs" / "guides" / "evaluation.md").read_text(encoding="utf-8")
    scores, reward = (part.split("```")[0] for part in page.split("```python\n")[1:])
    exec(compile(scores, "evaluation.md", "exec"), {})
    assert capsys.readouterr().out.endswith(" 3 the references scored\n")
    exec(compile(reward, "evaluation.md", "exec"), {})
