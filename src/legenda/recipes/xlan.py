"""X-LAN and X-Transformer on COCO as released, and the rows of X-LAN's Table 3 (Pan et al., CVPR 2020).

Table 3 reports scores after cross-entropy, so its rows have no second stage. The released second stages also change
dropout rates: X-LAN's rate inside attention becomes 0, and its dropout before the output layer is off while captions
are sampled; X-Transformer's decoder has 0.1, its last layer 0. (In the release the residual dropout of X-Transformer's
decoder is 0.1 too; here it shares the encoder's rate, 0.3.) The release truncates X-Transformer's features to 50
regions.
"""

from collections.abc import Mapping

from legenda.recipes.coco import Stages, coco, paper_recipes, table_row
from legenda.recipes.recipe import Recipe
from legenda.tasks.config import ScheduledSamplingConfig, SelfCriticalConfig
from legenda.training.config import TrainingConfig
from legenda.training.schedules import Noam, Plateau

_DRAWN = SelfCriticalConfig(baseline="greedy", max_reference_length=17, max_length=17)

_XLAN: Stages = (
    TrainingConfig(
        epochs=70,
        batch_size=40,
        schedule=Noam(dim=1024),
        eps=1e-9,
        max_grad_norm=0.5,
        scheduled_sampling=ScheduledSamplingConfig(increment=0.05, start_epoch=7),
    ),
    TrainingConfig(
        epochs=35,
        objective="self_critical",
        self_critical=_DRAWN,
        dropout={"mid_dropout": 0.0, "output_dropout": 0.0},
        batch_size=20,
        schedule=Plateau(learning_rate=1e-5, factor=0.8, patience=3),
        betas=(0.9, 0.999),
        max_grad_norm=0.0,
        max_grad_value=0.1,
    ),
)

_XTRANSFORMER: Stages = (
    TrainingConfig(
        epochs=70,
        batch_size=160,
        schedule=Noam(dim=768),
        optimizer="radam",
        eps=1e-9,
        label_smoothing=0.1,
        label_smoothing_target="non_target",
        max_grad_norm=0.0,
        max_grad_value=0.1,
        eval_beam_size=2,
    ),
    TrainingConfig(
        epochs=60,
        objective="self_critical",
        self_critical=_DRAWN,
        dropout={"decoder_dropout": 0.1, "output_dropout": 0.0},
        batch_size=32,
        schedule=Plateau(learning_rate=1e-5, factor=0.8, patience=3),
        optimizer="radam",
        betas=(0.9, 0.999),
        max_grad_norm=0.0,
        max_grad_value=0.1,
        eval_beam_size=2,
    ),
)

_DATA = coco(min_count=6)

_TABLE3 = ("base", *(f"encoder{blocks}" for blocks in range(5)))


def xlan_recipes() -> dict[str, Recipe]:
    """Return every named model of the paper, and the rows of Table 3."""
    models = paper_recipes("xlan*", lambda _: _XLAN, _DATA)
    models |= paper_recipes("xtransformer", lambda _: _XTRANSFORMER, _DATA)
    return models | {row.name: row for row in _table3(models)}


def _table3(models: Mapping[str, Recipe]) -> list[Recipe]:
    """Return the rows with X-Linear blocks in encoder and decoder, with different numbers, and with ELU."""
    rows = {row: models[f"coco.xlan_{row}"] for row in _TABLE3}
    named = [table_row(f"xlan.table3.{row}", model, fine_tuned=False) for row, model in rows.items()]
    # as many blocks as the row before, on scenes too
    return [*named, table_row("xlan.table3.full", models["coco.xlan"], overrides={"num_layers": 4}, fine_tuned=False)]
