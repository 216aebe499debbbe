"""Metrics of captions and, in `legenda.metrics.vqa`, of answers; rewards of self-critical training."""

from legenda.metrics import vqa
from legenda.metrics.diversity import (
    Diversity,
    Oracle,
    measure_diversity,
    novel_fraction,
    score_oracle,
    vocabulary_size,
)
from legenda.metrics.evaluation import METRICS, Scores, evaluate, register_metric
from legenda.metrics.metric import CaptionSet, Metric
from legenda.metrics.resampling import Difference, Interval, compare, holm, intervals
from legenda.metrics.rewards import BleuReward, CiderD
from legenda.text.ngrams import DocumentFrequencies

__all__ = [
    "METRICS",
    "BleuReward",
    "CaptionSet",
    "CiderD",
    "Difference",
    "Diversity",
    "DocumentFrequencies",
    "Interval",
    "Metric",
    "Oracle",
    "Scores",
    "compare",
    "evaluate",
    "holm",
    "intervals",
    "measure_diversity",
    "novel_fraction",
    "register_metric",
    "score_oracle",
    "vocabulary_size",
    "vqa",
]
