"""The kinds of data that a recipe can name, by the "kind" in the config.json of a run."""

from __future__ import annotations

from legenda.plugins import Registry

DATASETS: Registry[type] = Registry(
    "data set",
    {
        "scenes": "legenda.datasets.captions:ScenesData",
        "karpathy": "legenda.datasets.captions:KarpathyData",
        "photo": "legenda.extractors.photo_data:PhotoData",
        "moving_scenes": "legenda.datasets.video_scenes:MovingScenesData",
        "vqa": "legenda.datasets.question_configs:VqaData",
        "daquar": "legenda.datasets.question_configs:DaquarData",
        "scene_questions": "legenda.datasets.question_configs:SceneQuestionsData",
        "refs": "legenda.datasets.expression_configs:RefsData",
        "entities": "legenda.datasets.expression_configs:EntitiesData",
        "scene_expressions": "legenda.datasets.expression_configs:SceneExpressionsData",
        "parallel": "legenda.datasets.translation:ParallelData",
        "number_words": "legenda.datasets.numerals:NumberWordsData",
    },
)
"""A kind is a frozen dataclass of plain fields and paths with `open` and `split`, as `legenda.recipes.recipe.Data`."""
