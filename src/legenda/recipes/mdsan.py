"""MD-SAN on COCO as released, the rows of its Tables IV to XIII (Ji et al., MD-SAN), and the Meshed Transformer.

A released step of cross-entropy has 50 captions of any images; here it has 5 captions of each of 10 images, so that an
epoch has as many steps. The released second stage runs for up to 100 epochs, until it is stopped.
"""

from collections.abc import Mapping

from legenda.recipes.coco import Stages, coco, paper_recipes, table_row
from legenda.recipes.recipe import Recipe
from legenda.tasks.config import SelfCriticalConfig
from legenda.training.config import TrainingConfig
from legenda.training.schedules import EpochwiseLR

_STAGES: Stages = (
    TrainingConfig(
        epochs=19,
        max_caption_length=53,
        schedule=EpochwiseLR(learning_rates=(2.5e-5, 5e-5, 7.5e-5, *[1e-4] * 7, *[2e-5] * 2, 4e-6)),
        max_grad_norm=0.0,
        eval_beam_size=5,
        early_stopping_patience=3,
    ),
    TrainingConfig(
        epochs=100,
        objective="self_critical",
        self_critical=SelfCriticalConfig(
            sample_method="beam",
            baseline="mean",
            reward_includes_eos=False,
            df_unit="captions",
            loss_reduction="max_length",
            max_length=20,
        ),
        schedule=EpochwiseLR(learning_rates=(*[5e-6] * 10, 5e-7)),
        betas=(0.9, 0.999),
        max_grad_norm=0.0,
        eval_beam_size=5,
    ),
)

_DATA = coco(min_count=5)

_NAMED_ROWS = {
    "table5": {"m1": "plain", "m2": "msa_m2", "m3": "msa", "m4": "msa_m4"},
    "table7": {name: name for name in ("plain", "abspe", "relpe", "cheby", "eucli", "dsa")},
    "table8": {name: name for name in ("plain", "lpf", "qpf", "ns", "dsa")},
    "table9": {name: name for name in ("plain", "swin", "halo", "dsa")},
    "table10": {name: name for name in ("plain", "talking", "heads", "extendqk", "large", "msa")},
    "table13": {name: name for name in ("plain", "dsa", "msa")},
}
"""The rows that are named models: table, row, and the name of the model after mdsan_."""


def mdsan_recipes() -> dict[str, Recipe]:
    """Return every named model of the paper, and the rows of the tables."""
    models = paper_recipes("mdsan*", lambda _: _STAGES, _DATA) | paper_recipes("meshed", lambda _: _STAGES, _DATA)
    rows = [*_table4(models), *_named_rows(models), *_table6(models), *_table11(models), *_table12(models)]
    return models | {row.name: row for row in rows}


def _named_rows(models: Mapping[str, Recipe]) -> list[Recipe]:
    """Return the rows of Tables V, VII to X and XIII: branches, distances, scalings, windows, wider attention, all."""
    rows = {
        f"mdsan.{table}.{row}": models[f"coco.mdsan_{model}"]
        for table, named in _NAMED_ROWS.items()
        for row, model in named.items()
    }
    rows["mdsan.table13.full"] = models["coco.mdsan"]
    return [table_row(name, model) for name, model in rows.items()]


def _table4(models: Mapping[str, Recipe]) -> list[Recipe]:
    """Return the rows with different numbers of layers."""
    return [
        table_row(
            f"mdsan.table4.layers_{layers}",
            models["coco.mdsan"],
            change=f", {layers} layers",
            overrides={"num_layers": layers},
        )
        for layers in range(2, 7)
    ]


def _table6(models: Mapping[str, Recipe]) -> list[Recipe]:
    """Return the rows with different rates of branch dropout, in percent."""
    return [
        table_row(
            f"mdsan.table6.drop_{percent}",
            models["coco.mdsan_msa"],
            change=f", {percent} % dropped",
            overrides={"drop_branch": percent / 100},
        )
        for percent in range(0, 60, 10)
    ]


def _table11(models: Mapping[str, Recipe]) -> list[Recipe]:
    """Return the rows with different rates of head dropout, in percent, with heads instead of branches."""
    named = {"heads_40": "heads_drop", "extendqk_20": "extendqk_drop", "msa": "msa"}
    rows = {
        f"{kind}_{percent}": table_row(
            f"mdsan.table11.{kind}_{percent}",
            models[f"coco.mdsan_{kind}"],
            change=f", {percent} % dropped",
            overrides={"drop_head": percent / 100},
        )
        for kind in ("heads", "extendqk")
        for percent in (0, 20, 30, 40)
    }
    for row, model in named.items():
        rows[row] = table_row(f"mdsan.table11.{row}", models[f"coco.mdsan_{model}"])
    return list(rows.values())


def _table12(models: Mapping[str, Recipe]) -> list[Recipe]:
    """Return the rows with branches in some of three layers; on scenes the models have three layers too."""
    rows = {row: f"coco.mdsan_{row}" for row in ("dsa", *(f"msa_{layers}" for layers in (1, 2, 3, 12, 13, 23)))}
    rows["full"] = "coco.mdsan"
    return [
        table_row(f"mdsan.table12.{row}", models[model], overrides={"num_layers": 3}) for row, model in rows.items()
    ]
