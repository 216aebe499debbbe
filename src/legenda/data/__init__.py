"""Data sets: captioned images and videos, questions, referring expressions, parallel text, and the embedded scenes."""

from legenda.text.annotations import CaptionedImage, read_annotations

__all__ = ["CaptionedImage", "read_annotations"]
