"""Feature stores: the stored features of images' regions, behind one interface."""

from legenda.features.base import FeatureStore, RegionArrays
from legenda.features.open import open_features
from legenda.features.packed import PackedFeatureStore
from legenda.features.writer import write_store

__all__ = ["FeatureStore", "PackedFeatureStore", "RegionArrays", "open_features", "write_store"]
