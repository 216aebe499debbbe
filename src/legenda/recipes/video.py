"""Captions of videos: VATEX with normalized attention, MSR-VTT with attention on attention, and moving scenes.

NG-SAN's Table 7 (one layer each way, "the same training configuration as image captioning", section 5.4) and AoANet's
section 4.6 state little more than that. What they do not state follows their image captioning: batch sizes, lengths and
vocabulary; MSR-VTT's sizes and schedule. Frames have an order, unlike regions, so VATEX's encoder adds positions.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from legenda.datasets.captions import KarpathyData
from legenda.datasets.video_scenes import MovingScenesData
from legenda.recipes.aoanet import aoanet_recipes
from legenda.recipes.ngsan import ngsan_recipes
from legenda.recipes.recipe import Recipe
from legenda.training.config import TrainingConfig
from legenda.training.schedules import StepDecay

_VATEX = KarpathyData(annotations=Path("vatex"), features=Path("vatex_i3d"))
_MSRVTT = KarpathyData(annotations=Path("msrvtt"), features=Path("msrvtt_resnet101"))

_SMALL = {"dim": 64, "num_heads": 4, "num_layers": 1, "dropout": 0.0}
_TRAINING = TrainingConfig(
    epochs=12,
    batch_size=32,
    captions_per_image=2,
    schedule=StepDecay(learning_rate=2e-3, warmup_steps=100, decay=0.5, decay_after=(6, 9)),
    eval_every=2,
    eval_beam_size=1,
    monitor="truth",
)

_ORDERED = {"ordered": True}
_RECURRENT = {"recurrent": True}


def video_recipes() -> dict[str, Recipe]:
    """Return Table 7's two rows, section 4.6's two decoders, and four models of moving scenes."""
    recipes = [*_vatex(), *_msrvtt(), *_moving()]
    return {recipe.name: recipe for recipe in recipes}


def _vatex() -> list[Recipe]:
    rows = {"transformer": "Transformer", "nsan": "Transformer with normalized queries"}
    stages = {model: ngsan_recipes()[f"coco.{model}"] for model in rows}
    return [
        replace(
            stages[model],
            name=f"vatex.{model}",
            summary=f"VATEX: {label} (NG-SAN, Table 7)",
            model_overrides={"num_layers": 1} | _ORDERED,
            data=_VATEX,
        )
        for model, label in rows.items()
    ]


def _msrvtt() -> list[Recipe]:
    rows = {"base": ("aoanet_base", "base decoder"), "aoa": ("aoanet_aoa", "decoder with attention on attention")}
    recipes = aoanet_recipes()
    return [
        replace(
            recipes[f"coco.{model}"],
            name=f"msrvtt.{row}",
            summary=f"MSR-VTT: LSTM over frames, {label} (AoANet, section 4.6)",
            model_overrides=_RECURRENT,
            data=_MSRVTT,
        )
        for row, (model, label) in rows.items()
    ]


def _moving() -> list[Recipe]:
    rows: dict[str, tuple[str, str, dict[str, Any]]] = {
        "transformer": ("transformer", "frames in their order", {"ff_dim": 128} | _ORDERED),
        "unordered": ("transformer", "frames without an order", {"ff_dim": 128}),
        "nsan": ("nsan", "frames in their order, queries normalized", {"ff_dim": 128} | _ORDERED),
        "aoanet": (
            "aoanet_aoa",
            "LSTM over frames, attention on attention",
            {"num_layers": 0, "additive_dim": 64, "aoa_dropout": 0.0, "attention_dropout": 0.0} | _RECURRENT,
        ),
    }
    return [
        Recipe(
            name=f"video.{row}",
            summary=f"moving scenes: {label}",
            model=model,
            model_overrides=_SMALL | options,
            data=MovingScenesData(),
            stages=(_TRAINING,),
        )
        for row, (model, label, options) in rows.items()
    ]
