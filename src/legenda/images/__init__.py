"""Images: found in files, folders and URLs, and read within limits; frames of videos."""

from legenda.images.extractor import FrameSampling
from legenda.images.files import find_images, read_image, to_image

__all__ = ["FrameSampling", "find_images", "read_image", "to_image"]
