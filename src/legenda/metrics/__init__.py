"""Metrics of captions, and rewards of self-critical training; `legenda.metrics.vqa` has the accuracy of answers."""

from importlib import import_module
from types import ModuleType

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
    "holm",
    "intervals",
    "measure_diversity",
    "novel_fraction",
    "score_oracle",
    "vocabulary_size",
]


def __getattr__(name: str) -> ModuleType:
    if name != "vqa":
        raise AttributeError(f"module 'legenda.metrics' has no attribute '{name}'")
    return import_module("legenda.metrics.vqa")  # not before it is used: captions need no other task
