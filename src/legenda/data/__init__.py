"""Data sets: captioned images and videos, questions, referring expressions, parallel text, and the embedded scenes."""

from legenda.data.annotations import CaptionedImage, read_annotations, read_karpathy
from legenda.data.registry import DATASETS

__all__ = ["DATASETS", "CaptionedImage", "read_annotations", "read_karpathy"]
