"""Translation: Transformer-Base with the attention of NG-SAN, parallel text, and number words."""

from importlib.resources import files

from legenda.models.registry import Entry

PARTS = {
    "task": {"translation": "legenda.extras.translation.task:Translation"},
    "model": {
        "translator": Entry(
            "legenda.extras.translation.model:TranslatorConfig",
            "Vaswani et al., NeurIPS 2017",
            "Transformer-Base for translation",
            vocab_size=32768,
            task="translation",
            parameters=60_915_712,
        )
    },
    "data set": {
        "parallel": "legenda.extras.translation.data:ParallelData",
        "number_words": "legenda.extras.translation.data:NumberWordsData",
    },
    "file of recipes": {"translation": files(__name__) / "recipes.toml"},
}
