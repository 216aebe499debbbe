"""Tasks: captioning, visual question answering, grounding and translation; objectives, predictions and scores."""

from typing import TYPE_CHECKING

from legenda.lazy import lazy_names

if TYPE_CHECKING:
    from legenda.tasks.base import Task
    from legenda.tasks.captioning import Captioning
    from legenda.tasks.objectives import advantages, cross_entropy, policy_gradient
    from legenda.tasks.rewards import Reward

__getattr__ = lazy_names(
    __name__,
    {
        "base": ["Task"],
        "captioning": ["Captioning"],
        "objectives": ["advantages", "cross_entropy", "policy_gradient"],
        "rewards": ["Reward"],
    },
)

__all__ = ["Captioning", "Reward", "Task", "advantages", "cross_entropy", "policy_gradient"]
