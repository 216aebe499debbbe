"""Data sets: captioned images and videos, questions, referring expressions, parallel text, and the embedded scenes."""

from legenda.datasets.annotations import read_annotations
from legenda.datasets.karpathy import CaptionedImage, read_karpathy
from legenda.datasets.registry import DATASETS

__all__ = ["DATASETS", "CaptionedImage", "read_annotations", "read_karpathy"]
