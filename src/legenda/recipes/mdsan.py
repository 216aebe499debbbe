"""MD-SAN on COCO as released, with the rows of Tables V to XIII (Ji et al., MD-SAN), and the Meshed Transformer.

A released step of cross-entropy has 50 captions of any images; ours has 5 captions of each of 10, so that an epoch has
as many steps. The released second stage ends nowhere: it would go through 100 epochs.
"""

from legenda.recipes.coco import Stages, coco, paper_recipes
from legenda.recipes.recipe import Recipe
from legenda.training.schedules import Table
from legenda.training.settings import SelfCritical, Training

_STAGES: Stages = (
    Training(
        epochs=19,
        max_words=53,
        schedule=Table(rates=(2.5e-5, 5e-5, 7.5e-5, *[1e-4] * 7, *[2e-5] * 2, 4e-6)),
        clip_norm=0.0,
        validation_beam=5,
        patience=3,
    ),
    Training(
        epochs=100,
        objective="self_critical",
        self_critical=SelfCritical(
            sampling="beam",
            baseline="mean",
            end_in_reward=False,
            frequencies="captions",
            mean="places",
            max_length=20,
        ),
        schedule=Table(rates=(*[5e-6] * 10, 5e-7)),
        betas=(0.9, 0.999),
        clip_norm=0.0,
        validation_beam=5,
    ),
)

_DATA = coco(min_count=5)


def mdsan_recipes() -> dict[str, Recipe]:
    """Every named model of the paper."""
    return paper_recipes("mdsan*", lambda _: _STAGES, _DATA) | paper_recipes("meshed", lambda _: _STAGES, _DATA)
