"""Feature stores: the stored features of images' regions, behind one interface."""

from legenda.data.features.base import FeatureStore, RegionArrays
from legenda.data.features.open import open_features
from legenda.data.features.packed import PackedFeatureStore
from legenda.data.features.writer import write_store

__all__ = ["FeatureStore", "PackedFeatureStore", "RegionArrays", "open_features", "write_store"]
