"""The interface of tasks, and captioning with its objectives, predictions and scores; other tasks are in `extras`."""

from legenda.tasks.base import SelfCriticalConfig, Task
from legenda.tasks.captioning import Captioning, generate_captions, score_captions
from legenda.tasks.objectives import CrossEntropy

__all__ = ["Captioning", "CrossEntropy", "SelfCriticalConfig", "Task", "generate_captions", "score_captions"]
