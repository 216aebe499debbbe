"""Tasks: captioning, visual question answering, grounding and translation; objectives, predictions and scores."""

from legenda.tasks.base import SelfCriticalConfig, Task
from legenda.tasks.captioning import Captioning, generate_captions, score_captions
from legenda.tasks.objectives import CrossEntropy

__all__ = ["Captioning", "CrossEntropy", "SelfCriticalConfig", "Task", "generate_captions", "score_captions"]
