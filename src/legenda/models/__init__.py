"""The models, one file per paper, and their registry. Names are imported when first used, so listing needs no torch."""

from legenda.lazy import attach_stub

__getattr__, __all__ = attach_stub(__name__, __file__)
