"""Feature stores: the stored features of images' regions, behind one interface."""

from legenda.features.base import Features, PackedRegions
from legenda.features.open import open_features
from legenda.features.packed import FeatureStore
from legenda.features.writer import write_store

__all__ = ["FeatureStore", "Features", "PackedRegions", "open_features", "write_store"]
