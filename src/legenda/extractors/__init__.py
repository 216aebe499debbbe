"""Extractors: functions from images to the features of their regions, by name or from a Python file."""

from legenda.features.extraction import ExtractionReport, extract_store
from legenda.features.extractors import EXTRACTORS, load_extractor
from legenda.images.extractor import Extractor, run_extractor

__all__ = ["EXTRACTORS", "ExtractionReport", "Extractor", "extract_store", "load_extractor", "run_extractor"]
