"""Weights of the released codes, as models of ours that give the same captions to the last token."""

from legenda.importers.load import IMPORTERS, load

__all__ = ["IMPORTERS", "load"]
