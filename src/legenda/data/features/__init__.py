"""Feature stores: the stored features of images' regions, behind one interface."""

from legenda.data.features.base import FeatureStore
from legenda.data.features.packed import PackedFeatureStore, write_store
from legenda.data.features.readers import open_features

__all__ = ["FeatureStore", "PackedFeatureStore", "open_features", "write_store"]
