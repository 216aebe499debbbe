"""Metrics of captions, answers, boxes and translations, and rewards of self-critical training."""

from legenda.extras.vqa.metric import evaluate_vqa, normalize_answer, vqa_accuracy
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
from legenda.metrics.resampling import Difference, Interval, compare, holm, intervals
from legenda.metrics.rewards import CiderD

__all__ = [
    "METRICS",
    "WITHOUT_JAVA",
    "CiderD",
    "Difference",
    "Diversity",
    "DocumentFrequencies",
    "Interval",
    "Oracle",
    "Scores",
    "compare",
    "evaluate",
    "evaluate_vqa",
    "holm",
    "intervals",
    "measure_diversity",
    "normalize_answer",
    "novel_fraction",
    "score_oracle",
    "vocabulary_size",
    "vqa_accuracy",
]
