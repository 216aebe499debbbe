"""MCAN for questions: on VQA-v2 as released and as NG-SAN and MD-SAN extend it, on DAQUAR, and on the embedded scenes.

MD-SAN's scores (Table XIV) are of models trained on train and evaluated on val, NG-SAN's (Table 9) of models trained on
val and Visual Genome's questions too and evaluated by EvalAI; here the latter are called online.

The releases drop an incomplete last batch and count warm-up epochs as size / batch steps, so that their warm-up ends up
to three steps later than here.
"""

from dataclasses import replace
from pathlib import Path

from legenda.datasets.question_configs import DaquarData, SceneQuestionsData, VqaData
from legenda.recipes.recipe import Recipe
from legenda.tasks.vqa import Vqa
from legenda.training.config import TrainingConfig
from legenda.training.schedules import EpochwiseLR, StepDecay


def mcan_rates(rate: float) -> EpochwiseLR:
    """Return MCAN's schedule: a quarter more in each of the first epochs, a fifth after the tenth and the twelfth."""
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
"""The sizes on scenes; without dropout, as there are many scenes."""

_QUESTION_SIZES = {**SCENE_SIZES, "dim": 128, "num_heads": 8, "ff_dim": 512}
"""Larger sizes for questions: with 64 channels, most models did not learn questions about presence."""

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
"""The sizes on data sets of a few thousand questions."""


def vqa_recipes() -> dict[str, Recipe]:
    """Return the papers' models on VQA-v2 for both evaluations, and small models on DAQUAR and on scenes."""
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
        *(_on_daquar(model, label) for model, label in _SMALL_MODELS.items()),
        *(_on_scenes(model, label) for model, label in _SMALL_MODELS.items()),
    ]
    return {recipe.name: recipe for recipe in recipes}


_SMALL_MODELS = {
    "mcan": "MCAN",
    "mcan_gsa": "MCAN with geometry among the regions",
    "mcan_dsa_msa": "MCAN with distances and branches among the regions",
}


def _on_vqa(name: str, model: str, summary: str, data: VqaData, training: TrainingConfig) -> Recipe:
    data_set = "VQA-v2" if data.train == "train" else "VQA-v2 for EvalAI"
    return Recipe(name=name, summary=f"{data_set}: {summary}", model=model, data=data, stages=(training,), task=Vqa)


def _on_daquar(model: str, label: str) -> Recipe:
    return Recipe(
        name=f"daquar.{model}",
        summary=f"questions about rooms: small {label}",
        model=model,
        model_overrides=SMALL_SIZES,
        data=DaquarData(questions=Path("daquar"), features=(Path("daquar.safetensors"),)),
        stages=(replace(_SMALL, schedule=mcan_rates(2e-4)),),
        task=Vqa,
    )


def _on_scenes(model: str, label: str) -> Recipe:
    return Recipe(
        name=f"vqa.scenes{model.removeprefix('mcan')}",
        summary=f"questions about scenes: small {label}",
        model=model,
        model_overrides=_QUESTION_SIZES,
        data=SceneQuestionsData(),
        stages=(ON_SCENES,),
        task=Vqa,
    )
