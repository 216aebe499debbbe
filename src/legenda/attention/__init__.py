"""Attention: one file per mechanism, equations numbered as in the papers."""

from legenda.lazy import attach_stub

__getattr__, __all__ = attach_stub(__name__, __file__)
