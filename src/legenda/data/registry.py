"""The kinds of data that a recipe can name, by the "kind" in the config.json of a run."""

from __future__ import annotations

from legenda.registry import Registry

DATASETS: Registry[type] = Registry(
    "data set",
    {
        "scenes": "legenda.data.captions:ScenesData",
        "karpathy": "legenda.data.captions:KarpathyData",
        "photo": "legenda.extractors.photo_data:PhotoData",
        "moving_scenes": "legenda.extras.video:MovingScenesData",
        "vqa": "legenda.extras.vqa:VqaData",
        "daquar": "legenda.extras.vqa:DaquarData",
        "scene_questions": "legenda.extras.vqa:SceneQuestionsData",
        "refs": "legenda.extras.grounding:RefsData",
        "entities": "legenda.extras.grounding:EntitiesData",
        "scene_expressions": "legenda.extras.grounding:SceneExpressionsData",
        "parallel": "legenda.extras.translation:ParallelData",
        "number_words": "legenda.extras.translation:NumberWordsData",
    },
)
"""A kind is a configuration with its name as `kind`, and with `open` and `split`, as `legenda.recipes.Data`."""
