"""Weights of the released codes, as models of ours that give the same captions to the last token."""

from legenda.importers.load import KINDS, load

__all__ = ["KINDS", "load"]
