"""Images: finding and reading them, and extracting the features of their regions; stores are written by jobs."""

from legenda.extractors.base import EXTRACTORS, Extractor, load_extractor, run_extractor
from legenda.extractors.images import find_images, read_image, to_image
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
