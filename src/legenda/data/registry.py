"""The kinds of data that a recipe can name, by the "kind" in the config.json of a run."""

from __future__ import annotations

from legenda.registry import Registry

DATASETS: Registry[type] = Registry(
    "data set",
    {
        "scenes": "legenda.data.captions:ScenesData",
        "karpathy": "legenda.data.captions:KarpathyData",
        "photo": "legenda.extractors.photo_data:PhotoData",
        "moving_scenes": "legenda.data.video_scenes:MovingScenesData",
        "vqa": "legenda.data.question_configs:VqaData",
        "daquar": "legenda.data.question_configs:DaquarData",
        "scene_questions": "legenda.data.question_configs:SceneQuestionsData",
        "refs": "legenda.data.expression_configs:RefsData",
        "entities": "legenda.data.expression_configs:EntitiesData",
        "scene_expressions": "legenda.data.expression_configs:SceneExpressionsData",
        "parallel": "legenda.data.translation:ParallelData",
        "number_words": "legenda.data.numerals:NumberWordsData",
    },
)
"""A kind is a configuration with its name as `kind`, and with `open` and `split`, as `legenda.recipes.Data`."""
