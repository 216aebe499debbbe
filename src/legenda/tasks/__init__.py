"""Tasks: captioning, visual question answering, grounding and translation; objectives, predictions and scores."""

from legenda.lazy import attach_stub

__getattr__, __all__ = attach_stub(__name__, __file__)
