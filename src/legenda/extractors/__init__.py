"""Pictures: finding and reading them, and turning them into stored regions."""

from legenda.extractors.base import load_extractor, run_extractor
from legenda.extractors.extraction import ExtractionReport, extract_store
from legenda.extractors.images import find_images, read_image
from legenda.extractors.registry import EXTRACTORS, Extractor

__all__ = [
    "EXTRACTORS",
    "ExtractionReport",
    "Extractor",
    "extract_store",
    "find_images",
    "load_extractor",
    "read_image",
    "run_extractor",
]
