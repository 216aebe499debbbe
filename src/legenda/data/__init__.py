"""Data sets: captioned images and the stored features of their regions."""

from legenda.data.captions import CaptionedImage, read_karpathy
from legenda.data.features import FeatureStore, PackedRegions, write_store

__all__ = ["CaptionedImage", "FeatureStore", "PackedRegions", "read_karpathy", "write_store"]
