"""Training: objectives, schedules, the loop, and the state that survives a kill."""

from legenda.training.captioning import Captioning
from legenda.training.folder import check_folder, is_finished
from legenda.training.objectives import advantages, cross_entropy, policy_gradient
from legenda.training.rewards import Reward
from legenda.training.schedules import (
    SCHEDULES,
    Constant,
    Cosine,
    InverseSqrt,
    Noam,
    Plateau,
    Schedule,
    StepDecay,
    Table,
)
from legenda.training.settings import ScheduledSampling, SelfCritical, Training
from legenda.training.start import Trained, train
from legenda.training.task import Task

__all__ = [
    "SCHEDULES",
    "Captioning",
    "Constant",
    "Cosine",
    "InverseSqrt",
    "Noam",
    "Plateau",
    "Reward",
    "Schedule",
    "ScheduledSampling",
    "SelfCritical",
    "StepDecay",
    "Table",
    "Task",
    "Trained",
    "Training",
    "advantages",
    "check_folder",
    "cross_entropy",
    "is_finished",
    "policy_gradient",
    "train",
]
