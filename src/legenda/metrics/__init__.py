"""Metrics of captions, answers, boxes and translations, and rewards of self-critical training."""

from legenda.metrics.boxes import box_iou, grounding_accuracy
from legenda.metrics.cider import DocumentFrequencies
from legenda.metrics.diversity import (
    Diversity,
    Oracle,
    measure_diversity,
    novel_fraction,
    score_oracle,
    vocabulary_size,
)
from legenda.metrics.evaluation import METRICS, WITHOUT_JAVA, Scores, evaluate
from legenda.metrics.meteor import MeteorScores
from legenda.metrics.resampling import Difference, Interval, compare, holm, intervals
from legenda.metrics.rewards import BleuReward, CiderD
from legenda.metrics.spice import SpiceScores, download_jars
from legenda.metrics.vqa import VqaScores, evaluate_vqa, normalize_answer, vqa_accuracy

__all__ = [
    "METRICS",
    "WITHOUT_JAVA",
    "BleuReward",
    "CiderD",
    "Difference",
    "Diversity",
    "DocumentFrequencies",
    "Interval",
    "MeteorScores",
    "Oracle",
    "Scores",
    "SpiceScores",
    "VqaScores",
    "box_iou",
    "compare",
    "download_jars",
    "evaluate",
    "evaluate_vqa",
    "grounding_accuracy",
    "holm",
    "intervals",
    "measure_diversity",
    "normalize_answer",
    "novel_fraction",
    "score_oracle",
    "vocabulary_size",
    "vqa_accuracy",
]
