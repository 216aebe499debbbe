"""Grounding: MCAN for referring expressions, RefCOCO, Flickr30k Entities, and expressions about scenes.

The backbone, the words and the data sets are those of questions (`legenda.extras.vqa`).
"""

from importlib.resources import files

from legenda.models.registry import Entry

PARTS = {
    "task": {"grounding": "legenda.extras.grounding.task:Grounding"},
    "model": {
        "mcan_grounding": Entry(
            "legenda.extras.grounding.model:GroundingConfig",
            "Yu et al., ACM MM 2020",
            "MCAN for grounding: the region that an expression means",
            task="grounding",
            parameters=50_985_158,
        )
    },
    "data set": {
        "refs": "legenda.extras.grounding.data:RefsData",
        "entities": "legenda.extras.grounding.data:EntitiesData",
        "scene_expressions": "legenda.extras.grounding.data:SceneExpressionsData",
    },
    "file of recipes": {"grounding": files(__name__) / "recipes.toml"},
}
