"""NG-SAN on COCO as its section 5.1 trains it, and the rows of its Tables 1 to 4 (Guo et al., CVPR 2020).

The paper does not state the batch size, Adam's betas, the gradient clipping, and the baseline and learning rate of the
second stage. These follow the self-critical code base of its authors: 10 images with 5 captions each, (0.9, 0.999),
gradient values clipped at 0.1, the greedy caption as the baseline; and a learning rate of 1e-5.
"""

from typing import Any

from legenda.recipes.coco import Stages, coco, recipe
from legenda.recipes.recipe import Recipe
from legenda.tasks.config import SelfCriticalConfig
from legenda.training.config import TrainingConfig
from legenda.training.schedules import Constant, EpochwiseLR

_DATA = coco(min_count=6)

_STAGES: Stages = (
    TrainingConfig(epochs=15, schedule=EpochwiseLR(), betas=(0.9, 0.999), max_grad_norm=0.0, max_grad_value=0.1),
    TrainingConfig(
        epochs=15,
        objective="self_critical",
        self_critical=SelfCriticalConfig(baseline="greedy", max_reference_length=16),
        schedule=Constant(learning_rate=1e-5),
        betas=(0.9, 0.999),
        max_grad_norm=0.0,
        max_grad_value=0.1,
    ),
)

_NAMES = {
    "transformer": "SAN, the baseline",
    "nsan": "N-SAN, normalized queries",
    "gsan": "G-SAN, query-dependent geometry",
    "ngsan": "NG-SAN, both",
}

_NORMS = {"ln": "layer", "bn": "batch", "in_affine": "instance, with gains and shifts", "in": "instance"}
_GEOMETRIES = ("absolute", "content", "key", "query")


def ngsan_recipes() -> dict[str, Recipe]:
    """Return the four models, and every row of the tables."""
    rows = [*_models(), *_table1(), *_table2(), *_table3(), *_table4()]
    return {row.name: row for row in rows}


def _row(name: str, summary: str, model: str, options: dict[str, Any] | None = None) -> Recipe:
    return recipe(name, f"COCO: {summary}", model, _STAGES, _DATA, options)


def _models() -> list[Recipe]:
    """Return the rows of Table 6."""
    return [_row(f"coco.{model}", f"{summary} (NG-SAN, Table 6)", model) for model, summary in _NAMES.items()]


def _table1() -> list[Recipe]:
    """Return the rows with different numbers of layers."""
    return [
        _row(f"ngsan.table1.{model}_{layers}", f"{label}, {layers} layers", model, {"num_layers": layers})
        for layers in (1, 2, 4, 6)
        for model, label in (("transformer", "SAN"), ("nsan", "N-SAN"))
    ]


def _table2() -> list[Recipe]:
    """Return the rows with different normalizations of the queries."""
    return [_row("ngsan.table2.none", "SAN, nothing normalized", "transformer")] + [
        _row(f"ngsan.table2.{norm}", f"queries normalized: {label}", "nsan", {"norm": norm})
        for norm, label in _NORMS.items()
    ]


def _table3() -> list[Recipe]:
    """Return the rows with normalized queries, keys, or both."""
    return [_row("ngsan.table3.none", "SAN, nothing normalized", "transformer")] + [
        _row(f"ngsan.table3.{which}", f"normalized: {which}", "nsan", {"norm_on": which}) for which in ("q", "k", "qk")
    ]


def _table4() -> list[Recipe]:
    """Return the rows with different geometries."""
    return [_row("ngsan.table4.none", "SAN, no geometry", "transformer")] + [
        _row(
            f"ngsan.table4.{geometry}",
            f"geometry: {geometry}",
            "transformer" if geometry == "absolute" else "gsan",
            {"geometry": geometry},
        )
        for geometry in _GEOMETRIES
    ]
