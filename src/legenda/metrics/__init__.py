"""Scores of captions."""

from legenda.metrics.evaluation import Scores, evaluate

__all__ = ["Scores", "evaluate"]
