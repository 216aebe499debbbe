"""The names of the files in a run folder."""

CONFIG = "config.json"
"""The model's configuration, and for a trained run its recipe, data and stages."""
WEIGHTS = "model.safetensors"
"""The weights of the best model."""
STAGE_WEIGHTS = "model_stage{}.safetensors"
"""The best weights of a stage before the last, counted from 1, with which the next stage began."""
VOCABULARY = "vocabulary.txt"
ANSWERS = "answers.txt"
"""The answers of a model for visual question answering."""
SUBWORDS = "subwords.model"
"""The subword segmentation of a translator."""
STATE = "training_state.safetensors"
"""What a stopped training resumes from."""
HISTORY = "metrics.jsonl"
"""Losses and scores, one record a line."""
HISTORY_TABLE = "metrics.csv"
"""The same records as a table."""

RUN_FILES = (CONFIG, WEIGHTS, STAGE_WEIGHTS, VOCABULARY, ANSWERS, SUBWORDS, STATE, HISTORY, HISTORY_TABLE)
"""All of them but the evaluations."""


def evaluation_file(split: str, *, ensemble: bool = False) -> str:
    """Return the name of the file with predictions and scores of a split, of the run or of an ensemble of runs."""
    return f"evaluation_{split}_ensemble.json" if ensemble else f"evaluation_{split}.json"
