"""Tasks: captioning, visual question answering, grounding and translation; objectives, predictions and scores."""

from legenda.tasks.base import Task
from legenda.tasks.captioning import Captioning
from legenda.tasks.objectives import advantages, cross_entropy, policy_gradient
from legenda.tasks.self_critical import Reward

__all__ = ["Captioning", "Reward", "Task", "advantages", "cross_entropy", "policy_gradient"]
