"""Images: finding and reading them, and extracting the features of their regions into stores."""

from legenda.extractors.base import Extractor, run_extractor
from legenda.extractors.extraction import ExtractionReport, extract_store
from legenda.extractors.images import find_images, read_image, to_image
from legenda.extractors.processes import ExtractorProcesses
from legenda.extractors.registry import EXTRACTORS, load_extractor
from legenda.extractors.video import FrameSampling

__all__ = [
    "EXTRACTORS",
    "ExtractionReport",
    "Extractor",
    "ExtractorProcesses",
    "FrameSampling",
    "extract_store",
    "find_images",
    "load_extractor",
    "read_image",
    "run_extractor",
    "to_image",
]
