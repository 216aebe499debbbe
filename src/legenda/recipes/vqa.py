"""MCAN for questions: on VQA-v2 as released and as NG-SAN and MD-SAN extend it, on DAQUAR, and on the embedded scenes.

MD-SAN's figures (Table XIV) are of models that learn train and are scored on val, NG-SAN's (Table 9) of models that
learn val and Visual Genome's questions too and are scored by EvalAI; here the latter are called online.

The releases leave out a last batch that is not whole, and count epochs of the warm-up as size / batch steps, so that it
ends up to three steps later than ours.
"""

from dataclasses import replace
from pathlib import Path

from legenda.datasets.question_configs import DaquarData, SceneQuestionsData, VqaData
from legenda.recipes.recipe import Recipe
from legenda.tasks.vqa import Vqa
from legenda.training.config import TrainingConfig
from legenda.training.schedules import EpochwiseLR, StepDecay


def mcan_rates(rate: float) -> EpochwiseLR:
    """MCAN's: a quarter more in each of the first epochs, and a fifth after the tenth and again after the twelfth."""
    return EpochwiseLR(learning_rates=(rate / 4, rate / 2, 3 * rate / 4, *[rate] * 7, *[rate / 5] * 2, rate / 25))


_SMALL = TrainingConfig(
    epochs=13,
    batch_size=64,
    schedule=mcan_rates(1e-4),
    eps=1e-9,
    max_grad_norm=0.0,
    monitor="accuracy",
)
_LARGE = replace(_SMALL, schedule=mcan_rates(7e-5), gradient_accumulation_steps=2)
_LARGE_ONLINE = replace(_LARGE, schedule=mcan_rates(5e-5))

_VQA = VqaData(questions=Path("vqa2"), features=(Path("coco.safetensors"),), with_cls=True)
_ONLINE = replace(_VQA, train="train+val+vg", with_cls=False)

SCENE_SIZES = {
    "dim": 64,
    "word_dim": 64,
    "num_heads": 4,
    "num_layers": 2,
    "ff_dim": 256,
    "pool_dim": 64,
    "pooled_dim": 128,
    "geometry_dim": 32,
    "dropout": 0.0,
}
"""The sizes on scenes; without dropout, for scenes are many."""

_QUESTIONED = {**SCENE_SIZES, "dim": 128, "num_heads": 8, "ff_dim": 512}
"""Questions need more of it: with 64 channels, whether something is there or not was mostly never learnt."""

ON_SCENES = TrainingConfig(
    epochs=10,
    batch_size=64,
    schedule=StepDecay(learning_rate=5e-4, warmup_steps=500, decay=0.3, decay_after=(8, 9)),
    max_grad_norm=20.0,
    monitor="accuracy",
)

SMALL_SIZES = {
    "dim": 256,
    "num_heads": 4,
    "num_layers": 2,
    "ff_dim": 512,
    "pool_dim": 256,
    "pooled_dim": 512,
    "dropout": 0.2,
}
"""The sizes on data sets of some thousand questions."""


def vqa_recipes() -> dict[str, Recipe]:
    """The papers' models on VQA-v2 in both ways of scoring, and small ones on DAQUAR and on scenes."""
    recipes = [
        _on_vqa("vqa2.mcan_small", "mcan", "MCAN-small (MD-SAN, Table XIV, MCAN)", _VQA, _SMALL),
        _on_vqa("vqa2.mcan_large", "mcan_large", "MCAN-large (Yu et al.)", _VQA, _LARGE),
        _on_vqa("vqa2.mcan_gsa", "mcan_gsa", "MCAN-small with NG-SAN's geometry", _VQA, _SMALL),
        _on_vqa(
            "vqa2.mcan_dsa_msa",
            "mcan_dsa_msa",
            "MCAN-small with distances and branches (MD-SAN, Table XIV, Ours)",
            _VQA,
            _SMALL,
        ),
        _on_vqa("vqa2.online.mcan_small", "mcan", "MCAN-small (NG-SAN, Table 9, MCAN)", _ONLINE, _SMALL),
        _on_vqa("vqa2.online.mcan_large", "mcan_large", "MCAN-large (Yu et al.)", _ONLINE, _LARGE_ONLINE),
        _on_vqa(
            "vqa2.online.mcan_gsa", "mcan_gsa", "MCAN-small with geometry (NG-SAN, Table 9, +GSA)", _ONLINE, _SMALL
        ),
        *(_on_daquar(model, told) for model, told in _SMALL_ONES.items()),
        *(_on_scenes(model, told) for model, told in _SMALL_ONES.items()),
    ]
    return {recipe.name: recipe for recipe in recipes}


_SMALL_ONES = {
    "mcan": "MCAN",
    "mcan_gsa": "MCAN with geometry among the regions",
    "mcan_dsa_msa": "MCAN with distances and branches among the regions",
}


def _on_vqa(name: str, model: str, summary: str, data: VqaData, training: TrainingConfig) -> Recipe:
    learnt = "VQA-v2" if data.train == "train" else "VQA-v2 for EvalAI"
    return Recipe(name=name, summary=f"{learnt}: {summary}", model=model, data=data, stages=(training,), task=Vqa)


def _on_daquar(model: str, told: str) -> Recipe:
    return Recipe(
        name=f"daquar.{model}",
        summary=f"questions about rooms: small {told}",
        model=model,
        model_overrides=SMALL_SIZES,
        data=DaquarData(questions=Path("daquar"), features=(Path("daquar.safetensors"),)),
        stages=(replace(_SMALL, schedule=mcan_rates(2e-4)),),
        task=Vqa,
    )


def _on_scenes(model: str, told: str) -> Recipe:
    return Recipe(
        name=f"vqa.scenes{model.removeprefix('mcan')}",
        summary=f"questions about scenes: small {told}",
        model=model,
        model_overrides=_QUESTIONED,
        data=SceneQuestionsData(),
        stages=(ON_SCENES,),
        task=Vqa,
    )
