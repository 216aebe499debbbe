"""Visual question answering: MCAN, VQA v2 with Visual Genome, DAQUAR, and questions about scenes."""

from importlib.resources import files

from legenda.models.registry import Entry

PARTS = {
    "task": {"vqa": "legenda.extras.vqa.task:Vqa"},
    "model": {
        "mcan": Entry(
            "legenda.extras.vqa.model:McanConfig",
            "Yu et al., CVPR 2019",
            "MCAN: answers to questions, by co-attention of question and regions",
            vocab_size=20572,
            task="vqa",
            parameters=57_812_491,
        )
    },
    "data set": {
        "vqa": "legenda.extras.vqa.data:VqaData",
        "daquar": "legenda.extras.vqa.data:DaquarData",
        "scene_questions": "legenda.extras.vqa.data:SceneQuestionsData",
    },
    "kind of weights": {"mcan": "legenda.extras.vqa.importer:MCAN"},
    "file of recipes": {"vqa": files(__name__) / "recipes.toml"},
}
