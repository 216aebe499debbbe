"""Data sets: captioned images and videos, questions, referring expressions, parallel text, and the embedded scenes."""

from legenda.data.annotations import CaptionedImage, read_annotations

__all__ = ["CaptionedImage", "read_annotations"]
