"""Translation: NG-SAN's Table 8 on WMT14, and the same on Multi30k and on number words for two cores.

The paper trains fairseq's transformer_wmt_en_de on 4.56 million pairs, tokenized and segmented by joint BPE, and states
neither batch size nor steps. These follow fairseq: about 25,000 tokens of each language in a step, 100,000 steps, the
average of the last checkpoints. Here a step has a fixed number of pairs, not of tokens, and weights are averaged at the
ends of epochs.
"""

from dataclasses import replace
from pathlib import Path

from legenda.datasets.numerals import NumberWordsData
from legenda.datasets.translation import ParallelData
from legenda.recipes.recipe import Recipe
from legenda.tasks.translation import Translation
from legenda.training.config import TrainingConfig
from legenda.training.schedules import InverseSqrt

_WMT14 = ParallelData(
    folder=Path("wmt14"),
    train="train.tok.clean.bpe.32000",
    validation="newstest2013.tok.bpe.32000",
    test="newstest2014.tok.bpe.32000",
    pieces=0,
    max_length=250,
)

_PAPER = TrainingConfig(
    epochs=25,
    batch_size=1024,
    schedule=InverseSqrt(),
    label_smoothing=0.1,
    label_smoothing_target="non_target",
    max_grad_norm=0.0,
    weight_averaging="swa",
    averaging_start_epoch=21,
    eval_beam_size=4,
    monitor="BLEU",
    precision="bf16-mixed",
)

_MULTI30K = ParallelData(folder=Path("multi30k"), pieces=4000, max_length=60)

_SMALL = replace(
    _PAPER,
    epochs=5,
    batch_size=64,
    schedule=InverseSqrt(learning_rate=2e-3, warmup_steps=400),
    weight_averaging="none",
    averaging_start_epoch=1,
    eval_beam_size=1,
    precision="32-true",
)

_NUMBERS = replace(
    _SMALL,
    epochs=3,
    schedule=InverseSqrt(learning_rate=2e-3, warmup_steps=200),
    label_smoothing=0.0,
    weight_averaging="ema",
    ema_decay=0.99,
    monitor="exact",
)

_MODELS = {
    "transformer": ("translator", "Transformer"),
    "nsa": ("translator_nsa", "Transformer with normalized self-attention in its encoder"),
}


def translation_recipes() -> dict[str, Recipe]:
    """Return the baseline and the paper's module on each data set; only the module differs."""
    small = {"dim": 128, "num_heads": 4, "num_layers": 3, "ff_dim": 256}
    tiny = {"dim": 64, "num_heads": 4, "num_layers": 2, "ff_dim": 128, "dropout": 0.0}
    recipes = []
    for short, (model, summary) in _MODELS.items():
        recipes += [
            Recipe(
                name=f"wmt14.{short}",
                summary=f"WMT14 English-German: {summary} (NG-SAN, Table 8)",
                model=model,
                data=_WMT14,
                stages=(_PAPER,),
                task=Translation,
            ),
            Recipe(
                name=f"multi30k.{short}",
                summary=f"Multi30k English-German: small {summary}",
                model=model,
                model_overrides=small,
                data=_MULTI30K,
                stages=(_SMALL,),
                task=Translation,
            ),
            Recipe(
                name=f"number_words.{short}",
                summary=f"number words of two invented languages: tiny {summary}",
                model=model,
                model_overrides=tiny,
                data=NumberWordsData(),
                stages=(_NUMBERS,),
                task=Translation,
            ),
        ]
    return {recipe.name: recipe for recipe in recipes}
