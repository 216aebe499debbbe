"""X-LAN and X-Transformer on COCO as released, and the rows of X-LAN's Table 3 (Pan et al., CVPR 2020).

Table 3 has scores after cross-entropy, so its rows have no second stage. The released second stages also change rates
of dropout: X-LAN's inside attention becomes 0, and that before the output layer is left out while captions are drawn;
X-Transformer's decoder has 0.1, its last layer 0. (There what a layer of X-Transformer's decoder adds to its words has
0.1 as well; here it shares the encoder's rate, 0.3.) X-Transformer's features end at 50 regions there.
"""

from collections.abc import Mapping

from legenda.recipes.coco import Stages, coco, paper_recipes, table_row
from legenda.recipes.recipe import Recipe
from legenda.tasks.config import ScheduledSampling, SelfCritical
from legenda.training.config import Training
from legenda.training.schedules import Noam, Plateau

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
        dropout={"mid_dropout": 0.0, "output_dropout": 0.0},
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
        dropout={"decoder_dropout": 0.1, "output_dropout": 0.0},
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

_TABLE3 = ("base", *(f"encoder{blocks}" for blocks in range(5)))


def xlan_recipes() -> dict[str, Recipe]:
    """Every named model of the paper, and the rows of Table 3."""
    models = paper_recipes("xlan*", lambda _: _XLAN, _DATA)
    models |= paper_recipes("xtransformer", lambda _: _XTRANSFORMER, _DATA)
    return models | {row.name: row for row in _table3(models)}


def _table3(models: Mapping[str, Recipe]) -> list[Recipe]:
    """Where X-Linear blocks stand, how many of them, and what ELU adds."""
    rows = {row: models[f"coco.xlan_{row}"] for row in _TABLE3}
    named = [table_row(f"xlan.table3.{row}", model, fine_tuned=False) for row, model in rows.items()]
    # as many blocks as the row before, on scenes too
    return [*named, table_row("xlan.table3.full", models["coco.xlan"], options={"num_layers": 4}, fine_tuned=False)]
