"""Extractors: functions from images to the features of their regions, by name or from a Python file."""

from legenda.extractors.base import EXTRACTORS, Extractor, load_extractor, run_extractor

__all__ = ["EXTRACTORS", "Extractor", "load_extractor", "run_extractor"]
