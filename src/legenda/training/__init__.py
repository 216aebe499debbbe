"""Training: configuration, schedules, the loop, and checkpoints from which a killed run resumes exactly."""

from legenda.lazy import attach_stub

__getattr__, __all__ = attach_stub(__name__, __file__)
