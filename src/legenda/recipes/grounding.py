"""MCAN for grounding: on RefCOCO, RefCOCO+ and RefCOCOg as MD-SAN trains it, on Flickr30k's phrases, and on scenes.

All use the settings of mmnas, as MD-SAN does (section VI-B), with features of 100 regions for each image from a
detector that was not trained on the images of these data sets.
"""

from dataclasses import replace
from pathlib import Path

from legenda.datasets.expression_configs import EntitiesData, RefsData, SceneExpressionsData
from legenda.recipes.recipe import Recipe
from legenda.recipes.vqa import ON_SCENES, SCENE_SIZES, SMALL_SIZES, mcan_rates
from legenda.tasks.grounding import Grounding
from legenda.training.config import TrainingConfig
from legenda.training.schedules import StepDecay

_TRAINING = TrainingConfig(
    epochs=13,
    batch_size=64,
    schedule=mcan_rates(1.4e-4),
    eps=1e-9,
    max_grad_norm=1.0,
    monitor="accuracy",
)

_ON_SCENES = replace(
    ON_SCENES,
    epochs=4,
    schedule=StepDecay(learning_rate=1e-3, warmup_steps=200, decay=0.3, decay_after=(2, 3)),
    max_grad_norm=1.0,
)

_REFERENCES = {
    "refcoco": ("RefCOCO", "refcoco/refs(unc).p"),
    "refcoco_plus": ("RefCOCO+", "refcoco+/refs(unc).p"),
    "refcocog": ("RefCOCOg", "refcocog/refs(umd).p"),
}

_MODELS = {
    "mcan_grounding": "MCAN",
    "mcan_grounding_gsa": "MCAN with geometry among the regions",
    "mcan_grounding_dsa_msa": "MCAN with distances and branches among the regions",
}


def grounding_recipes() -> dict[str, Recipe]:
    """Return the papers' models on the three data sets, and small models on Flickr30k's phrases and on scenes."""
    recipes = [_on_references(name, model) for name in _REFERENCES for model in _MODELS]
    recipes += [make(model) for make in (_on_entities, _on_scenes) for model in _MODELS]
    return {recipe.name: recipe for recipe in recipes}


def _short(model: str) -> str:
    return model.replace("_grounding", "")


def _on_references(name: str, model: str) -> Recipe:
    title, refs = _REFERENCES[name]
    row = {"mcan_grounding": ", Table XV, MCAN", "mcan_grounding_dsa_msa": ", Table XV, Ours"}.get(model, "")
    return Recipe(
        name=f"{name}.{_short(model)}",
        summary=f"{title}: {_MODELS[model]}" + (f" (MD-SAN{row})" if row else ""),
        model=model,
        data=RefsData(
            refs=Path(refs), instances=Path(refs).parent / "instances.json", features=(Path("coco.safetensors"),)
        ),
        stages=(_TRAINING,),
        task=Grounding,
    )


def _on_entities(model: str) -> Recipe:
    return Recipe(
        name=f"entities.{_short(model)}",
        summary=f"phrases of Flickr8k's captions: small {_MODELS[model]}",
        model=model,
        model_overrides=SMALL_SIZES,
        data=EntitiesData(
            phrases=Path("flickr30k_entities.json.gz"),
            annotations=Path("dataset_flickr8k.json.gz"),
            features=(Path("flickr8k.safetensors"),),
        ),
        stages=(_TRAINING,),
        task=Grounding,
    )


def _on_scenes(model: str) -> Recipe:
    return Recipe(
        name=f"grounding.scenes{model.removeprefix('mcan_grounding')}",
        summary=f"expressions about scenes: small {_MODELS[model]}",
        model=model,
        model_overrides=SCENE_SIZES,
        data=SceneExpressionsData(),
        stages=(_ON_SCENES,),
        task=Grounding,
    )
