"""docs/tour.ipynb runs from top to bottom, and its measurements support what its text states about each attention."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbformat", reason="needs the package nbformat")
pytest.importorskip("nbclient", reason="needs the package nbclient")
pytest.importorskip("ipykernel", reason="needs the package ipykernel")
pytest.importorskip("matplotlib", reason="needs the extra figures")

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

TOUR = Path(__file__).resolve().parents[1] / "docs" / "tour.ipynb"
MEASURED = ("scores", "comparisons", "branches", "sharpness")


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> dict[str, Any]:
    """The measurements of the notebook at its end."""
    home = tmp_path_factory.mktemp("jupyter")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "IPYTHONDIR": str(home),
        "JUPYTER_CONFIG_DIR": str(home),
        "JUPYTER_RUNTIME_DIR": str(home),
    }
    notebook = nbformat.read(TOUR, as_version=4)
    values = ", ".join(f"{name!r}: {name}" for name in MEASURED)
    notebook.cells.append(nbformat.v4.new_code_cell(f"import json\nprint(json.dumps({{{values}}}))"))
    # no kernel that is installed somewhere, but the interpreter that runs this test
    native = KernelSpecManager(kernel_dirs=[], ensure_native_kernel=True)
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=native)
    NotebookClient(notebook, km=manager, timeout=900).execute(env=environment)
    return json.loads(notebook.cells[-1].outputs[0].text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attention", "nearest", "largest"),
    [
        ("plain", (0.0, 0.4), (0.0, 0.4)),
        ("GSA", (0.9, 1.0), (0.9, 1.0)),
        ("DSA", (0.7, 1.0), (0.0, 0.4)),
        ("DSA, 3 branches, p = 0.0", (0.7, 1.0), (0.0, 0.4)),
        ("DSA, 3 branches, p = 0.4", (0.7, 1.0), (0.0, 0.4)),
    ],
)
def test_each_attention_answers_what_its_equations_can_express(measured, attention, nearest, largest):
    for accuracy, (low, high) in zip(measured["scores"][attention], (nearest, largest), strict=True):
        assert low <= accuracy <= high


@pytest.mark.slow
@pytest.mark.parametrize(("attention", "low", "high"), [("plain", 0.4, 0.7), ("AoA", 0.95, 1), ("X-Linear", 0.95, 1)])
def test_only_attention_with_access_to_the_query_compares(measured, attention, low, high):
    color, verdict = measured["comparisons"][attention]
    assert color >= 0.95
    assert low <= verdict <= high


@pytest.mark.slow
def test_scaled_queries_change_plain_weights_and_no_normalized_ones(measured):
    plain, normalized = measured["sharpness"]["plain"], measured["sharpness"]["NSA"]
    assert max(plain) - min(plain) > 0.5
    assert max(normalized) - min(normalized) < 0.01


@pytest.mark.slow
def test_branches_that_are_dropped_in_training_are_better_alone(measured):
    without, dropped = measured["branches"]["0.0"], measured["branches"]["0.4"]
    assert min(dropped) > max(without)
    assert max(dropped) <= measured["scores"]["DSA, 3 branches, p = 0.4"][0] + 0.05


def test_all_cells_run_in_order(monkeypatch):
    """With three training steps per layer instead of 300, in this process."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    import matplotlib.pyplot as plt
    import torch

    threads = torch.get_num_threads()
    names: dict[str, Any] = {}
    for cell in nbformat.read(TOUR, as_version=4).cells:
        if cell.cell_type == "code":
            source = cell.source.replace("steps=300", "steps=3").replace('("tour", 1900)', '("tour", 1600)')
            exec(compile(source, str(TOUR), "exec"), names)
    torch.set_num_threads(threads)
    plt.close("all")
    plt.rcdefaults()
    assert set(MEASURED) <= set(names)
    sharpness = names["sharpness"]
    assert max(sharpness["NSA"]) - min(sharpness["NSA"]) < 0.01 < max(sharpness["plain"]) - min(sharpness["plain"])
