"""Data sets: captioned images and the stored features of their regions."""

from legenda.data.annotations import read_annotations
from legenda.data.captions import CaptionedImage, read_karpathy
from legenda.data.features import FeatureStore
from legenda.data.store import Features, PackedRegions
from legenda.data.stores import open_features
from legenda.data.writing import write_store

__all__ = [
    "CaptionedImage",
    "FeatureStore",
    "Features",
    "PackedRegions",
    "open_features",
    "read_annotations",
    "read_karpathy",
    "write_store",
]
