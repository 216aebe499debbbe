"""Captioning without the folder legenda/extras: nothing but the registries knows what it holds."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import legenda

PACKAGE = Path(legenda.__file__).parent
TESTS = Path(__file__).parents[1]
CAPTIONING = ("models/test_all_models.py", "decoding/test_beam.py", "tasks/test_objectives.py", "training/test_loop.py")


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """A copy of the source without the folder."""
    folder = tmp_path_factory.mktemp("bare")
    shutil.copytree(PACKAGE, folder / "legenda", ignore=shutil.ignore_patterns("extras", "__pycache__"))
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)


def test_no_other_module_names_a_part_of_extras():
    """The registry finds the folder."""
    naming = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.startswith("legenda.extras.") for name in names):
                naming.add(path.relative_to(PACKAGE))
    outside = {path for path in naming if path.parts[0] != "extras"}
    assert outside == {Path("registry.py")}


def test_the_lists_hold_captioning_alone(bare):
    done = run(bare, "-m", "legenda", "models")
    assert done.returncode == 0, done.stderr
    assert "ngsan" in done.stdout
    assert "mcan" not in done.stdout
    done = run(bare, "-m", "legenda", "recipes", "vqa2.mcan_small")
    assert (done.returncode, done.stdout) == (2, "")
    assert "vqa2.mcan_small" in done.stderr


@pytest.mark.slow
def test_captioners_are_built_searched_and_scored(bare):
    files = [str(TESTS / file) for file in CAPTIONING]
    done = run(bare, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files)
    assert done.returncode == 0, done.stdout[-3000:]


KINDS = (
    *("attention", "norm", "geometry", "distance", "window", "schedule", "reward", "metric", "feature store", "model"),
    *("decoder", "task", "data set", "extractor", "kind of weights"),
)


@pytest.mark.slow
def test_a_part_of_any_kind_is_one_file(bare):
    """A module in the folder whose PARTS names it, as CONTRIBUTING.md has it; a metric is scored with."""
    (bare / "legenda" / "extras").mkdir()
    (bare / "legenda" / "extras" / "__init__.py").touch()
    (bare / "legenda" / "extras" / "mine.py").write_text(
        "from legenda.metrics.metric import Metric\n"
        "def measure(captions):\n    return [len(caption) for caption, _ in captions]\n"
        f"PARTS = {{kind: {{'mine': 'legenda.extras.mine:measure'}} for kind in {KINDS}}}\n"
        "PARTS['metric'] = {'mine': Metric(measure, 'characters')}\n"
    )
    code = (
        "import legenda, legenda.cli.train, legenda.extractors, legenda.importers, legenda.tasks.self_critical\n"
        "from legenda import registry\n"
        "legenda.register_attention, legenda.register_feature_store, legenda.register_schedule\n"
        "print(*sorted(known.kind for known in registry._registries if 'mine' in known), sep='/')\n"
        "print(legenda.metrics.evaluate({1: 'a dog'}, {1: ['a cat']}, metrics='fast')['mine'])\n"
    )
    done = run(bare, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["/".join(sorted(KINDS)), "5.0"]
