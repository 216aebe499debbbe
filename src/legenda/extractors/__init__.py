"""Images: finding and reading them, and extracting the features of their regions; stores are written by jobs."""

from legenda.extractors.base import Extractor, run_extractor
from legenda.extractors.images import read_image, to_image
from legenda.extractors.registry import EXTRACTORS, load_extractor
from legenda.extractors.sources import find_images
from legenda.extractors.video import FrameSampling

__all__ = [
    "EXTRACTORS",
    "Extractor",
    "FrameSampling",
    "find_images",
    "load_extractor",
    "read_image",
    "run_extractor",
    "to_image",
]
