"""The accuracy of visual question answering under its public name; see `legenda.extras.vqa.metric`."""

from legenda.extras.vqa.metric import Annotation, VqaScores, evaluate_vqa, normalize_answer, vqa_accuracy

__all__ = ["Annotation", "VqaScores", "evaluate_vqa", "normalize_answer", "vqa_accuracy"]
