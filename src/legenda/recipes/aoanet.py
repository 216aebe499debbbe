"""AoANet on COCO as released, and the rows of its Table 4 (Huang et al., ICCV 2019).

Table 4 has scores after cross-entropy, so its rows have no second stage. Which settings the ablations were trained with
is not told; they have those of the full model here. The released second stage goes on from the last model and Adam's
running means; ours begins with the best model and fresh ones. The release looks at its plateau every 3,000 steps with a
patience of 3, which is about once an epoch: here it is looked at after each epoch, with none.
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
    """Every named model of the paper, and the rows of Table 4.

    The literal model trains as the paper says, 30 epochs without smoothing.
    """
    models = paper_recipes("aoanet*", _stages, _DATA) | paper_recipes("updown", _stages, _DATA)
    return models | {row.name: row for row in _table4(models)}


def _stages(model: str) -> Stages:
    first, second = _RELEASED
    return (replace(first, epochs=30, label_smoothing=0.0), second) if model == "aoanet_paper" else _RELEASED


def _table4(models: Mapping[str, Recipe]) -> list[Recipe]:
    """What attention on attention gains, in the encoder and in the decoder."""
    rows = {row: models[f"coco.aoanet_{row}"] for row in _TABLE4} | {"full": models["coco.aoanet"]}
    return [table_row(f"aoanet.table4.{row}", model, fine_tuned=False) for row, model in rows.items()]
