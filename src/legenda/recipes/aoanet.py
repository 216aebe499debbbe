"""AoANet on COCO as released, and the rows of its Table 4 (Huang et al., ICCV 2019).

Table 4 reports scores after cross-entropy, so its rows have no second stage. The paper does not state the settings of
the ablations; here they have those of the full model. The released second stage continues from the last model and the
state of Adam; here it starts from the best model and a new optimizer. The release checks for a plateau every 3,000
steps with a patience of 3, about once an epoch: here after each epoch, with a patience of 0.
"""

from collections.abc import Mapping
from dataclasses import replace

from legenda.recipes.coco import Stages, coco, paper_recipes, table_row
from legenda.recipes.recipe import Recipe
from legenda.tasks.config import ScheduledSamplingConfig, SelfCriticalConfig
from legenda.training.config import TrainingConfig
from legenda.training.schedules import Plateau, StepDecay

_RELEASED: Stages = (
    TrainingConfig(
        epochs=25,
        schedule=StepDecay(learning_rate=2e-4, warmup_steps=0, decay=0.8, decay_after=tuple(range(3, 25, 3))),
        betas=(0.9, 0.999),
        max_grad_norm=0.0,
        max_grad_value=0.1,
        label_smoothing=0.2,
        label_smoothing_target="non_target",
        scheduled_sampling=ScheduledSamplingConfig(increment=0.05),
        eval_beam_size=1,
    ),
    TrainingConfig(
        epochs=15,
        objective="self_critical",
        self_critical=SelfCriticalConfig(baseline="greedy", max_reference_length=16, max_length=20),
        schedule=Plateau(learning_rate=2e-5, factor=0.5, patience=0),
        betas=(0.9, 0.999),
        max_grad_norm=0.0,
        max_grad_value=0.1,
        eval_beam_size=1,
    ),
)

_DATA = coco(min_count=5)

_TABLE4 = ("base", "refine", "refine_aoa", "lstm", "aoa", "lstm_aoa", "mh", "mh_lstm", "mh_aoa")


def aoanet_recipes() -> dict[str, Recipe]:
    """Return every named model of the paper, and the rows of Table 4.

    aoanet_paper trains as the paper states, 30 epochs without label smoothing.
    """
    models = paper_recipes("aoanet*", _stages, _DATA) | paper_recipes("updown", _stages, _DATA)
    return models | {row.name: row for row in _table4(models)}


def _stages(model: str) -> Stages:
    first, second = _RELEASED
    return (replace(first, epochs=30, label_smoothing=0.0), second) if model == "aoanet_paper" else _RELEASED


def _table4(models: Mapping[str, Recipe]) -> list[Recipe]:
    """Return the rows with and without attention on attention in the encoder and in the decoder."""
    rows = {row: models[f"coco.aoanet_{row}"] for row in _TABLE4} | {"full": models["coco.aoanet"]}
    return [table_row(f"aoanet.table4.{row}", model, fine_tuned=False) for row, model in rows.items()]
