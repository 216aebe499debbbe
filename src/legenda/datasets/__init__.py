"""Data sets: captioned images and videos, questions, expressions, sentence pairs, and the embedded scenes."""

from legenda.datasets.annotations import read_annotations
from legenda.datasets.karpathy import CaptionedImage, read_karpathy

__all__ = ["CaptionedImage", "read_annotations", "read_karpathy"]
