"""Tasks: captioning, visual question answering, grounding and translation; objectives, predictions and scores."""

from legenda.tasks.base import Task
from legenda.tasks.captioning import Captioning

__all__ = ["Captioning", "Task"]
