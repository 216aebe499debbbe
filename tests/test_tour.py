"""docs/tour.ipynb runs from top to bottom, and what its text says of each attention is what comes out."""

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
MEASURED = ("scores", "asked", "branches", "sharpness")


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> dict[str, Any]:
    """What the notebook has measured at its end."""
    home = tmp_path_factory.mktemp("jupyter")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "IPYTHONDIR": str(home),
        "JUPYTER_CONFIG_DIR": str(home),
        "JUPYTER_RUNTIME_DIR": str(home),
    }
    notebook = nbformat.read(TOUR, as_version=4)
    told = ", ".join(f"{name!r}: {name}" for name in MEASURED)
    notebook.cells.append(nbformat.v4.new_code_cell(f"import json\nprint(json.dumps({{{told}}}))"))
    # no kernel that is installed somewhere, but the interpreter that runs this test
    native = KernelSpecManager(kernel_dirs=[], ensure_native_kernel=True)
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=native)
    NotebookClient(notebook, km=manager, timeout=900).execute(env=environment)
    return json.loads(notebook.cells[-1].outputs[0].text)


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
def test_each_attention_answers_what_its_equations_let_in(measured, attention, nearest, largest):
    for share, (low, high) in zip(measured["scores"][attention], (nearest, largest), strict=True):
        assert low <= share <= high


@pytest.mark.parametrize(("attention", "least", "most"), [("plain", 0.4, 0.7), ("AoA", 0.95, 1), ("X-Linear", 0.95, 1)])
def test_only_what_sees_the_question_compares(measured, attention, least, most):
    colour, verdict = measured["asked"][attention]
    assert colour >= 0.95
    assert least <= verdict <= most


def test_stretched_queries_move_plain_weights_and_no_normalised_ones(measured):
    plain, normalised = measured["sharpness"]["plain"], measured["sharpness"]["NSA"]
    assert max(plain) - min(plain) > 0.5
    assert max(normalised) - min(normalised) < 0.01


def test_branches_that_are_dropped_in_training_are_worth_more_alone(measured):
    without, dropped = measured["branches"]["0.0"], measured["branches"]["0.4"]
    assert min(dropped) > max(without)
    assert max(dropped) <= measured["scores"]["DSA, 3 branches, p = 0.4"][0] + 0.05


def test_the_kept_outputs_are_light_and_whole():
    notebook = nbformat.read(TOUR, as_version=4)
    assert TOUR.stat().st_size < 400_000
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert kinds <= {"stream", "display_data", "execute_result"}
    assert not any(cell.metadata for cell in cells)
