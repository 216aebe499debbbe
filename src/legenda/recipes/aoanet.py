"""AoANet on COCO as released, with the rows of Table 4 (Huang et al., ICCV 2019).

Which settings the ablations were trained with is not told; they have those of the full model here. The released second
stage goes on from the last model and Adam's running means; ours begins with the best model and fresh ones. The release
looks at its plateau every 3,000 steps with a patience of 3, which is about once an epoch: here it is looked at after
each epoch, with none.
"""

from dataclasses import replace

from legenda.recipes.coco import Stages, coco, paper_recipes
from legenda.recipes.recipe import Recipe
from legenda.training.schedules import Plateau, StepDecay
from legenda.training.settings import ScheduledSampling, SelfCritical, Training

_RELEASED: Stages = (
    Training(
        epochs=25,
        schedule=StepDecay(rate=2e-4, warmup_steps=0, decay=0.8, decay_after=tuple(range(3, 25, 3))),
        betas=(0.9, 0.999),
        clip_norm=0.0,
        clip_value=0.1,
        label_smoothing=0.2,
        smoothing="others",
        scheduled_sampling=ScheduledSampling(step=0.05),
        validation_beam=1,
    ),
    Training(
        epochs=15,
        objective="self_critical",
        self_critical=SelfCritical(baseline="greedy", reference_length=16, max_length=20),
        schedule=Plateau(rate=2e-5, factor=0.5, patience=0),
        betas=(0.9, 0.999),
        clip_norm=0.0,
        clip_value=0.1,
        validation_beam=1,
    ),
)

_DATA = coco(min_count=5)


def aoanet_recipes() -> dict[str, Recipe]:
    """Every named model of the paper; the literal one trains as the paper says, 30 epochs without smoothing."""
    return paper_recipes("aoanet*", _stages, _DATA) | paper_recipes("updown", _stages, _DATA)


def _stages(model: str) -> Stages:
    first, second = _RELEASED
    return (replace(first, epochs=30, label_smoothing=0.0), second) if model == "aoanet_paper" else _RELEASED
