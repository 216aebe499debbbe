"""docs/tour.ipynb runs from top to bottom, and its measurements support what its text states about each attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbformat", reason="needs the package nbformat")
pytest.importorskip("nbclient", reason="needs the package nbclient")
pytest.importorskip("ipykernel", reason="needs the package ipykernel")
pytest.importorskip("matplotlib", reason="needs the extra figures")

import nbformat

TOUR = Path(__file__).resolve().parents[1] / "docs" / "tour.ipynb"


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
    sharpness = names["sharpness"]
    assert max(sharpness["NSA"]) - min(sharpness["NSA"]) < 0.01 < max(sharpness["plain"]) - min(sharpness["plain"])
