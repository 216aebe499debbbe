"""X-LAN and X-Transformer on COCO as released, with the rows of Table 3 (Pan et al., CVPR 2020).

The released second stages also change rates of dropout (X-LAN's inside attention becomes 0; X-Transformer's decoder has
0.1, its last layer 0), which a stage cannot do here, and X-Transformer's features end at 50 regions.
"""

from legenda.recipes.coco import Stages, coco, paper_recipes
from legenda.recipes.recipe import Recipe
from legenda.training.schedules import Noam, Plateau
from legenda.training.settings import ScheduledSampling, SelfCritical, Training

_DRAWN = SelfCritical(baseline="greedy", reference_length=17, max_length=17)

_XLAN: Stages = (
    Training(
        epochs=70,
        batch_size=40,
        schedule=Noam(dim=1024),
        epsilon=1e-9,
        clip_norm=0.5,
        scheduled_sampling=ScheduledSampling(step=0.05, after=7),
    ),
    Training(
        epochs=35,
        objective="self_critical",
        self_critical=_DRAWN,
        batch_size=20,
        schedule=Plateau(rate=1e-5, factor=0.8, patience=3),
        betas=(0.9, 0.999),
        clip_norm=0.0,
        clip_value=0.1,
    ),
)

_XTRANSFORMER: Stages = (
    Training(
        epochs=70,
        batch_size=160,
        schedule=Noam(dim=768),
        optimizer="radam",
        epsilon=1e-9,
        label_smoothing=0.1,
        smoothing="others",
        clip_norm=0.0,
        clip_value=0.1,
        validation_beam=2,
    ),
    Training(
        epochs=60,
        objective="self_critical",
        self_critical=_DRAWN,
        batch_size=32,
        schedule=Plateau(rate=1e-5, factor=0.8, patience=3),
        optimizer="radam",
        betas=(0.9, 0.999),
        clip_norm=0.0,
        clip_value=0.1,
        validation_beam=2,
    ),
)

_DATA = coco(min_count=6)


def xlan_recipes() -> dict[str, Recipe]:
    """Every named model of the paper."""
    return paper_recipes("xlan*", lambda _: _XLAN, _DATA) | paper_recipes(
        "xtransformer", lambda _: _XTRANSFORMER, _DATA
    )
