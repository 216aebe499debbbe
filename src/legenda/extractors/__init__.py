"""Pictures: finding and reading them, and turning them into stored regions."""

from legenda.extractors.base import Extractor, load_extractor, run_extractor
from legenda.extractors.extraction import ExtractionReport, extract_store
from legenda.extractors.images import find_pictures, read_picture

__all__ = [
    "ExtractionReport",
    "Extractor",
    "extract_store",
    "find_pictures",
    "load_extractor",
    "read_picture",
    "run_extractor",
]
