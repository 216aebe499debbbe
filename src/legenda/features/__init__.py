"""Feature stores: the stored features of images' regions, behind one interface."""

from legenda.features.base import FeatureStore
from legenda.features.packed import PackedFeatureStore, write_store
from legenda.features.readers import open_features

__all__ = ["FeatureStore", "PackedFeatureStore", "open_features", "write_store"]
