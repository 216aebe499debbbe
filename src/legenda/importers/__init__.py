"""Load checkpoints of released codes into Legenda models, which then give the same captions."""

from legenda.importers.loading import IMPORTERS, load

__all__ = ["IMPORTERS", "load"]
